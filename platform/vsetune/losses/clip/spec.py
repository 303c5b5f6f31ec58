"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.losses.parts.spec_fields import InfoNceFields, ScaleStart, scale_start


class ClipSpec(InfoNceFields):
    """CLIP's loss: InfoNCE with a learned temperature."""

    equation: ClassVar[str] = (
        "1/2 (mean_i [lse_j e^u S_ij - e^u S_ii] + mean_j [lse_i e^u S_ij - e^u S_jj]),  u = ln 1/t learned, e^u <= 100"
    )
    source: ClassVar[str] = "Radford et al. 2021 (CLIP)"

    name: Literal["clip"] = "clip"
    learned: bool = Field(True, description="train the temperature, capped so that 1/t <= 100")
    start: ScaleStart = scale_start("softmax_temperature")
