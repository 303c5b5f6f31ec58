"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from vsetune.config.spec.base import Range, tunable
from vsetune.losses.loss_spec import warmup_epochs
from vsetune.losses.parts.spec_fields import HingeSpec


class IrtmSpec(HingeSpec):
    """Mean hinge over the h hardest negatives of each query (image-retrieval-text matching of TAGS-DC)."""

    equation: ClassVar[str] = (
        "1/B sum_i mean over the h hardest j of [m + S_ij - S_ii]+  +  1/B sum_j mean over the h hardest i of "
        "[m + S_ij - S_jj]+"
    )
    source: ClassVar[str] = "Fan et al. 2022 (TAGS-DC), Eq. 4-5; mean over h as in its released code"
    several_positives: ClassVar[bool] = False

    name: Literal["irtm"] = "irtm"
    hardest: int = tunable(
        31, Range(low=1, high=63, integer=True, log=True), ge=1, le=1_000_000,
        description="h, negatives per query; all of the batch when it has fewer", paper="TAGS-DC code: 31; Eq. 5: 1",
    )
    warmup_epochs: int = warmup_epochs()
