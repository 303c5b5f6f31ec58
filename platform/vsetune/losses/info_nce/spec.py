"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.spec.base import Range, tunable
from vsetune.losses.parts.spec_fields import SameImage, SoftmaxSpec


class InfoNceSpec(SoftmaxSpec):
    """Softmax cross-entropy over the batch in both directions (InfoNCE)."""

    equation: ClassVar[str] = (
        "1/2 (mean_i [lse_j S_ij / t - S_ii / t] + mean_j [lse_i S_ij / t - S_jj / t]),  lse: log-sum-exp"
    )
    source: ClassVar[str] = "van den Oord et al. 2018; Radford et al. 2021 (CLIP)"
    several_positives: ClassVar[bool] = True

    name: Literal["info_nce"] = "info_nce"
    positives: Literal["outside", "inside"] = Field(
        "outside", description="several positives: average outside the logarithm, or sum inside it",
    )
    label_smoothing: float = tunable(
        0.0, Range(low=0.0, high=0.2), ge=0, lt=1,
        description="eps, share of the target moved from the positives to all candidates of a query evenly",
        paper="none: 0",
    )
    variant: SameImage = Field(
        "decided",
        description="`decided` removes other captions of the same image from the denominator; `diagonal` keeps them",
    )
