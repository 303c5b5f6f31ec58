"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.component_specs import COSINES, LossSpec
from vsetune.config.spec.base import Range, Score, tunable
from vsetune.losses.parts.spec_fields import SameImage, ScaleStart, scale_start


class SiglipSpec(LossSpec):
    """Logistic loss: every image with every caption is a pair or not (SigLIP)."""

    equation: ClassVar[str] = (
        "1/B sum_ij softplus(-z_ij (e^u S_ij + b)),  z_ij = 1 for a pair and -1 otherwise;  u and b learned"
    )
    source: ClassVar[str] = "Zhai et al. 2023 (SigLIP), Algorithm 1"
    scores: ClassVar[frozenset[Score]] = COSINES
    several_positives: ClassVar[bool] = True

    name: Literal["siglip"] = "siglip"
    scale: float = tunable(
        10.0, Range(low=2, high=50, log=True), gt=0, le=1e4,
        description="start of e^u, which multiplies similarities", paper="SigLIP: 10",
    )
    bias: float = tunable(
        -10.0, Range(low=-20, high=0), ge=-1e4, le=1e4,
        description="start of b; negative, because most combinations are no pairs", paper="SigLIP: -10",
    )
    learned: bool = Field(True, description="train scale and bias; false keeps them at their start")
    start: ScaleStart = scale_start("scale and bias")
    variant: SameImage = Field(
        "decided",
        description="`decided` ignores other captions of the same image; `diagonal` (published) counts them as no "
        "pairs; no effect with batch_unit images, where they are pairs",
    )
