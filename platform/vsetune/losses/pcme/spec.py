"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.component_specs import LossSpec
from vsetune.config.spec.base import ALL_SCORES, Kind, Range, Score, tunable


class PcmeSpec(LossSpec):
    """Soft contrastive loss of sampled embeddings (PCME); an embedding network gives points: one sample, no spread."""

    equation: ClassVar[str] = (
        "2 sum_ij -ln mean over J^2 pairs of samples of sigmoid(+-2 (b - a dist))  +  w_unif ln mean exp(-2 |u - v|^2)"
        "  +  w_kl (KL of images + KL of captions)"
    )
    source: ClassVar[str] = "Chun et al. 2021 (PCME)"
    kinds: ClassVar[frozenset[Kind]] = frozenset({"embedding", "probabilistic"})
    scores: ClassVar[frozenset[Score]] = ALL_SCORES - {"order"}

    name: Literal["pcme"] = "pcme"
    samples: int = Field(7, ge=1, le=1000, description="J, embeddings sampled per item of a probabilistic network")
    scale: float = tunable(
        15.0, Range(low=2, high=30, log=True), gt=0, description="start of a", paper="PCME on MS-COCO: 15; CUB: 5")
    shift: float = tunable(
        15.0, Range(low=2, high=30, log=True), description="start of b", paper="PCME on MS-COCO: 15; CUB: 5")
    kl_weight: float = tunable(
        1e-5, Range(low=1e-6, high=1e-2, log=True), ge=0,
        description="w_kl; no effect on points", paper="PCME on MS-COCO: 1e-5; CUB: 1e-3",
    )
    uniformity_weight: float = tunable(
        0.0, Range(low=0.0, high=10.0), ge=0, description="w_unif", paper="PCME on MS-COCO: 0; CUB: 10",
    )
    variant: Literal["decided", "released"] = Field(
        "decided",
        description="`decided`: KL of the predicted mean and of s as log standard deviation, uniformity over all "
        "samples; `released`: KL of the mean of the samples, s as log variance, uniformity over 128 samples, "
        "same-image captions count as mismatches",
    )
