"""Softmax losses over the batch: InfoNCE and NT-Xent."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.base import Range, tunable
from vsetune.config.losses.base import COSINES, LossSpec
from vsetune.config.losses.hinges import SameImage
from vsetune.config.networks import Kind, Score


class SoftmaxSpec(LossSpec):
    """Softmax losses with one temperature."""

    softmax_temperature: float = tunable(
        0.07, Range(low=0.01, high=0.3, log=True), gt=0,
        description="t, divides similarities; the start value if learned", paper="CLIP: 0.07",
    )
    learned: bool = Field(False, description="train the temperature, capped so that 1/t <= 100")


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


class NtXentSpec(SoftmaxSpec):
    """Softmax over the 2 B - 1 others of both modalities together (NT-Xent)."""

    equation: ClassVar[str] = (
        "mean over the 2 B embeddings z of -log(exp(z.z+ / t) / sum over the 2 B - 1 others z' of exp(z.z' / t))"
    )
    source: ClassVar[str] = "Chen et al. 2020 (SimCLR)"
    kinds: ClassVar[frozenset[Kind]] = frozenset({"embedding"})
    scores: ClassVar[frozenset[Score]] = COSINES

    name: Literal["nt_xent"] = "nt_xent"
    variant: SameImage = Field(
        "decided",
        description="`decided` removes items of the same image from the denominator; `diagonal` keeps them",
    )
