"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from vsetune.config.component_specs import MemorySpec
from vsetune.config.spec.base import Range, tunable
from vsetune.losses.parts.spec_fields import DistanceSpec, refuse_random_with_memory

PairNegatives = Literal["random", "hardest", "all"]


class ContrastiveSpec(DistanceSpec, MemorySpec):
    """Pair loss on distances: matched pairs attract, others repel up to a margin (Malali and Keller, Eq. 2)."""

    equation: ClassVar[str] = "sum_n D(x_n, y_n+)  +  sum_n [m - D(x_n, y_n-)]+"
    source: ClassVar[str] = "Malali and Keller, Eq. 2 (Hadsell et al. 2006)"

    name: Literal["contrastive"] = "contrastive"
    margin: float = tunable(
        1.0, Range(low=0.3, high=1.4), gt=0, description="m, in units of distance", paper="losses of unit vectors: 1",
    )
    negatives: PairNegatives = Field(
        "random",
        description="negative of each pair: one sampled per image, the nearest caption of each image, or all captions",
    )
    squared: bool = Field(False, description="squared instead of plain Euclidean distance")

    @model_validator(mode="after")
    def _random_has_no_memory(self) -> ContrastiveSpec:
        refuse_random_with_memory(self.negatives, self.memory_size, "hardest or all")
        return self
