"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.component_specs import COSINES, EMBEDDINGS, MemorySpec, warmup_epochs
from vsetune.config.spec.base import Kind, Range, Score, tunable
from vsetune.losses.parts.spec_fields import SameImage


class PvseSpec(MemorySpec):
    """Multiple-instance hinge with diversity and domain-discrepancy terms (PVSE)."""

    equation: ClassVar[str] = (
        "mean hinge on S_ij = max over K x K pairs  +  w_div (mean |R R^T - I|_F / K^2, images + captions)  +  w_mmd "
        "MMD with kernel exp(-|x - y| / 2)"
    )
    source: ClassVar[str] = "Song and Soleymani 2019 (PVSE)"
    kinds: ClassVar[frozenset[Kind]] = EMBEDDINGS
    scores: ClassVar[frozenset[Score]] = COSINES

    name: Literal["pvse"] = "pvse"
    margin: float = tunable(
        0.1, Range(low=0.05, high=0.4), ge=0, description="alpha, in units of similarity", paper="PVSE: 0.1",
    )
    negatives: Literal["max", "sum"] = Field("max", description="hardest negative, or all (mean over B^2 entries)")
    diversity_weight: float = tunable(
        0.1, Range(low=1e-3, high=1.0, log=True), ge=0,
        description="w_div; no effect with one embedding per item", paper="PVSE commands: 0.1",
    )
    discrepancy_weight: float = tunable(
        0.01, Range(low=1e-3, high=1.0, log=True), ge=0,
        description="w_mmd; no effect with one embedding per item", paper="PVSE commands: 0.01",
    )
    kernel: Literal["distance", "squared"] = Field(
        "distance", description="exponent of the kernel: the distance (released code) or its square",
    )
    variant: SameImage = Field(
        "decided",
        description="`decided` ignores other captions of the same image; `diagonal` counts them as negatives",
    )
    warmup_epochs: int = warmup_epochs()
