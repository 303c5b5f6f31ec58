"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.component_specs import COSINES
from vsetune.config.spec.base import Kind, Score
from vsetune.losses.parts.spec_fields import SameImage, SoftmaxSpec


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
