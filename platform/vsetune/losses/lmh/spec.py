"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from vsetune.config.component_specs import warmup_epochs
from vsetune.losses.parts.spec_fields import HingeSpec


class LmhSpec(HingeSpec):
    """Max of hinges (LMH; VSE++)."""

    equation: ClassVar[str] = (
        "sum_i max_{j != i} [m + S_ij - S_ii]+  +  sum_j max_{i != j} [m + S_ij - S_jj]+"
    )
    source: ClassVar[str] = "Faghri et al. 2018 (VSE++), Eq. 6; Gong and Cosma 2022 (LSEH), Eq. 2"

    name: Literal["lmh"] = "lmh"
    warmup_epochs: int = warmup_epochs()
