"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from vsetune.losses.parts.spec_fields import InfoNceFields


class InfoNceSpec(InfoNceFields):
    """Softmax cross-entropy over the batch in both directions (InfoNCE)."""

    equation: ClassVar[str] = (
        "1/2 (mean_i [lse_j S_ij / t - S_ii / t] + mean_j [lse_i S_ij / t - S_jj / t]),  lse: log-sum-exp"
    )
    source: ClassVar[str] = "van den Oord et al. 2018; Radford et al. 2021 (CLIP)"

    name: Literal["info_nce"] = "info_nce"
