"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.component_specs import COSINES
from vsetune.config.spec.base import Range, Score, tunable
from vsetune.losses.parts.spec_fields import SameImage, SoftmaxSpec


class HclSpec(SoftmaxSpec):
    """InfoNCE whose negatives count more the harder they are, corrected for false negatives (HCL)."""

    equation: ClassVar[str] = (
        "mean of both directions of -ln(p / (p + G)),  p = exp(S_ii / t),  n_j = exp(S_ij / t),  "
        "G = max([N sum_j n_j^(1 + beta) / sum_j n_j^beta - N tau p] / (1 - tau), N exp(-1 / t))"
    )
    source: ClassVar[str] = "Robinson et al. 2021 (Contrastive Learning with Hard Negative Samples), Eq. 4 and 5"
    scores: ClassVar[frozenset[Score]] = COSINES

    name: Literal["hcl"] = "hcl"
    beta: float = tunable(
        1.0, Range(low=0.1, high=3, log=True), ge=0, le=100,
        description="concentration on hard negatives; 0: all count alike", paper="HCL: 0.5, 1 or 2",
    )
    tau_plus: float = tunable(
        0.1, Range(low=0.0, high=0.3), ge=0, lt=1,
        description="tau, assumed share of false negatives", paper="HCL: 0.1",
    )
    variant: SameImage = Field(
        "decided",
        description="`decided` removes other captions of the same image from the negatives; `diagonal` keeps them",
    )
