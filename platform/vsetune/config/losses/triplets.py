"""Triplets over a fraction of the hardest, and pair and triplet losses on distances."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from vsetune.config.base import Range, tunable
from vsetune.config.losses.base import COSINES, EMBEDDINGS, LossSpec, MemorySpec, warmup_epochs
from vsetune.config.networks import Kind, Score


class TopFSpec(MemorySpec):
    """Triplets over the hardest fraction f of positives and negatives, f decaying (MSE**, Eq. 1-4)."""

    equation: ClassVar[str] = (
        "per anchor: mean of [neg + m - pos]+ over its ceil(f n_p) lowest positives x ceil(f n_n) highest negatives; "
        "mean over anchors, divided by m; mean of the directions"
    )
    source: ClassVar[str] = "Huteau et al. 2023 (MSE**), Eq. 1-4"
    several_positives: ClassVar[bool] = True

    name: Literal["top_f"] = "top_f"
    margin: float = tunable(
        0.2, Range(low=0.05, high=0.4), gt=0,
        description="m, in units of similarity; the loss is divided by it", paper="MSE**: 0.2",
    )
    decay: Literal["hyperbolic", "linear", "cosine"] = Field("hyperbolic", description="schedule of f from 1 to 0")
    decay_steps: int = tunable(
        10_000, Range(low=200, high=20_000, log=True, integer=True), ge=1, le=10**9,
        description="training steps until f reaches 0", paper="MSE**: 10,000",
    )
    sharpness: float = tunable(
        16.0, Range(low=4, high=64, log=True), ge=0, when={"decay": "hyperbolic"},
        description="k of the hyperbolic decay (1 - s) / (1 + k s)", paper="MSE**: 16",
    )
    min_fraction: float = Field(0.0, ge=0, le=1, description="f never falls below this")
    warmup_epochs: int = warmup_epochs()


class DistanceSpec(LossSpec):
    """Losses on the Euclidean distance of unit vectors, D = sqrt(2 - 2 S)."""

    kinds: ClassVar[frozenset[Kind]] = EMBEDDINGS
    scores: ClassVar[frozenset[Score]] = COSINES


class TripletMarginFields(DistanceSpec):
    """The triplet term of Malali and Keller, shared by the adaptive-margin and the semantic centre loss."""

    margin: float = tunable(
        0.2, Range(low=0.05, high=0.3), gt=0,
        description="start of both margins, in units of distance", paper="Malali and Keller: 0.2",
    )
    growth: float = tunable(
        1.03, Range(low=1.01, high=1.1), ge=1,
        description="c, factor of one update; 1 is the plain triplet loss (Eq. 3)", paper="Malali and Keller: 1.03",
    )
    ratio: float = tunable(
        0.8, Range(low=0.6, high=0.95), ge=0, le=1,
        description="r, share of triplets above which a margin grows", paper="Malali and Keller: 0.8",
    )
    interval: int = tunable(
        500, Range(low=50, high=1000, log=True, integer=True), ge=1, le=10**9,
        description="q, training steps between updates", paper="Malali and Keller: 500",
    )
    cap: float = tunable(
        0.5, Range(low=0.3, high=1.0), gt=0, description="margins never exceed this", paper="our addition",
    )
    variant: Literal["decided", "as_printed"] = Field(
        "decided",
        description="`decided`: grows when the share that respects the margin exceeds r; `as_printed`: when the "
        "share that violates it does (Eq. 11-13 to the letter)",
    )
    negatives: Literal["random", "hardest"] = Field("random", description="negative of each anchor in the batch")
    squared: bool = Field(False, description="squared instead of plain Euclidean distance")

    @property
    def margins_grow(self) -> bool:
        """Whether any margin can become larger than it starts."""
        return self.growth > 1

    @model_validator(mode="after")
    def _start_below_cap(self) -> TripletMarginFields:
        if self.margins_grow and self.margin > self.cap:
            raise ValueError(f"margin {self.margin:g} is above cap {self.cap:g}; raise cap or lower margin")
        return self


class AdaptiveMarginSpec(TripletMarginFields, MemorySpec):
    """Triplet hinge on distances whose two margins grow with success (Malali and Keller, Eq. 10-13)."""

    equation: ClassVar[str] = (
        "sum_n [D(x_n, y_n+) - D(x_n, y_n-) + m_x]+  +  sum_n [D(y_n, x_n+) - D(y_n, x_n-) + m_y]+;  every q steps "
        "m <- c m where the share of respected triplets exceeds r"
    )
    source: ClassVar[str] = "Malali and Keller, Eq. 10-13"

    name: Literal["adaptive_margin"] = "adaptive_margin"
    warmup_epochs: int = warmup_epochs()

    @model_validator(mode="after")
    def _random_has_no_memory(self) -> AdaptiveMarginSpec:
        _refuse_random_with_memory(self.negatives, self.memory_size, "hardest")
        return self


class ContrastiveSpec(DistanceSpec, MemorySpec):
    """Pair loss on distances: matched pairs attract, others repel up to a margin (Malali and Keller, Eq. 2)."""

    equation: ClassVar[str] = "sum_n D(x_n, y_n+)  +  sum_n [m - D(x_n, y_n-)]+"
    source: ClassVar[str] = "Malali and Keller, Eq. 2 (Hadsell et al. 2006)"

    name: Literal["contrastive"] = "contrastive"
    margin: float = tunable(
        1.0, Range(low=0.3, high=1.4), gt=0, description="m, in units of distance", paper="losses of unit vectors: 1",
    )
    negatives: Literal["random", "hardest", "all"] = Field(
        "random",
        description="negative of each pair: one drawn per image, the nearest caption of each image, or all captions",
    )
    squared: bool = Field(False, description="squared instead of plain Euclidean distance")

    @model_validator(mode="after")
    def _random_has_no_memory(self) -> ContrastiveSpec:
        _refuse_random_with_memory(self.negatives, self.memory_size, "hardest or all")
        return self


class MarginBasedSpec(DistanceSpec):
    """Margin-based loss with a learned boundary, negatives drawn by distance (Wu et al. 2017); our adaptation."""

    equation: ClassVar[str] = (
        "sum over pairs of [a + y_ij (D_ij - beta)]+ / number of non-zero terms,  y = +1 matched, -1 not;  + nu beta"
    )
    source: ClassVar[str] = "Wu et al. 2017 (distance-weighted sampling); in Malali and Keller, Table 11"

    name: Literal["margin_based"] = "margin_based"
    margin: float = tunable(
        0.2, Range(low=0.05, high=0.4), gt=0, description="a, in units of distance", paper="Wu et al.: 0.2",
    )
    boundary: float = tunable(
        1.2, Range(low=0.6, high=1.4), gt=0, description="start of beta, in units of distance", paper="Wu et al.: 1.2",
    )
    boundary_learning_rate: float = tunable(
        0.1, Range(low=1e-3, high=0.3, log=True), ge=0,
        description="plain SGD rate of beta; 0 keeps it fixed", paper="Wu et al., released code: 0.1",
    )
    boundary_penalty: float = Field(0.0, ge=0, description="nu, weight of beta in the loss")
    negatives: Literal["distance_weighted", "all"] = Field(
        "distance_weighted", description="one negative per query drawn with inverse density of its distance, or all",
    )
    sampling_cutoff: float = Field(
        0.5, gt=0, lt=2, description="distances below count as this when drawing (released code)",
    )
    sampling_limit: float = Field(
        1.4, gt=0, lt=2,
        description="negatives farther than this are not drawn, unless a query has no others (released code)",
    )


def _refuse_random_with_memory(negatives: str, memory_size: int, others: str) -> None:
    if negatives == "random" and memory_size:
        raise ValueError(
            f"memory_size {memory_size}: negatives random draws from the batch alone and would never see the memory; "
            f"use negatives {others}, or memory_size 0"
        )
