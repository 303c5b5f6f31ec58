"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.component_specs import LossSpec, warmup_epochs
from vsetune.config.spec.base import Range, Score, tunable
from vsetune.losses.parts.spec_fields import SameImage


class OrderSpec(LossSpec):
    """Hinge loss of order embeddings: the similarity is minus how far the caption exceeds the image.

    Without the cross-batch memory of the other hinge losses, which compares by inner product.
    """

    equation: ClassVar[str] = (
        "S_ij = -|max(0, t_j - v_i)|;  sum or maximum over negatives of [m + S_ij - S_ii]+, both directions"
    )
    source: ClassVar[str] = "Vendrov et al. 2016; Faghri et al. 2018 (VSE++), rows Order0 and Order++"
    scores: ClassVar[frozenset[Score]] = frozenset({"order"})
    several_positives: ClassVar[bool] = True

    name: Literal["order"] = "order"
    margin: float = tunable(
        0.05, Range(low=0.01, high=0.3, log=True), ge=0,
        description="in units of distance", paper="VSE++ Order0: 0.05",
    )
    negatives: Literal["sum", "max"] = Field("sum", description="all negatives (Order0) or the hardest (Order++)")
    variant: SameImage = Field(
        "decided",
        description="`decided` ignores other captions of the same image; `diagonal` counts them as negatives; no "
        "effect with batch_unit images, where they are positives",
    )
    warmup_epochs: int = warmup_epochs()
