"""Fields and bases that specs of several losses share."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from vsetune.config.component_specs import COSINES, EMBEDDINGS, LossSpec, MemorySpec
from vsetune.config.spec.base import Kind, Range, Score, tunable
from vsetune.errors import Problem

SameImage = Literal["decided", "diagonal"]


class HingeSpec(MemorySpec):
    """Hinge losses with one margin."""

    several_positives: ClassVar[bool] = True

    margin: float = tunable(
        0.2, Range(low=0.05, high=0.4), ge=0,
        description="alpha, in units of similarity", paper="VSE++: 0.2",
    )
    variant: SameImage = Field(
        "decided",
        description="`decided` ignores other captions of the same image; `diagonal` (VSE++, VSRN, SCAN, ... as "
        "released) counts them as negatives; no effect with batch_unit images, where they are positives",
    )


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
            raise ValueError(Problem.of(
                "VSE-L012", "margin {margin:g} is above cap {cap:g}; raise cap or lower margin", margin=self.margin,
                cap=self.cap,
            ))
        return self


def refuse_random_with_memory(negatives: str, memory_size: int, others: str) -> None:
    if negatives == "random" and memory_size:
        raise ValueError(Problem.of(
            "VSE-L013", "memory_size {memory_size}: negatives random come from the batch alone, never from the memory; "
            "use negatives {others}, or memory_size 0", memory_size=memory_size, others=others,
        ))


class SoftmaxSpec(LossSpec):
    """Softmax losses with one temperature."""

    softmax_temperature: float = tunable(
        0.07, Range(low=0.01, high=0.3, log=True), gt=0,
        description="t, divides similarities; the start value if learned", paper="CLIP: 0.07",
    )
    learned: bool = Field(False, description="train the temperature, capped so that 1/t <= 100")


class InfoNceFields(SoftmaxSpec):
    """InfoNCE, with a fixed temperature or with CLIP's."""

    several_positives: ClassVar[bool] = True

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


ScaleStart = Literal["settings", "network"]


def scale_start(settings: str) -> ScaleStart:
    """The field of losses with a learned scale that a pre-trained network may bring. settings: those it replaces."""
    return Field(
        "settings",
        description=f"`network`: the training starts from the scale, and bias, stored with the weights of a "
        f"dual_encoder (CLIP, SigLIP); `settings`, and a network without them: from {settings}",
    )
