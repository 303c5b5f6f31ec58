"""Hyperparameters of every loss: default, allowed values, range searched by default, source.

The loss itself stands in `vsetune.losses`, in the file of the same name.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from vsetune.config.base import Choices, Range, Spec, tunable

SameImage = Literal["decided", "diagonal"]


class LossSpec(Spec):
    """What all losses share. `name` selects the loss."""


class HingeSpec(LossSpec):
    """Hinge losses on similarities in [-1, 1]."""

    margin: float = tunable(
        0.2, Range(low=0.05, high=0.4), ge=0,
        description="alpha, in units of similarity", paper="VSE++: 0.2",
    )
    variant: SameImage = Field(
        "decided",
        description="`decided` ignores other captions of the same image; `diagonal` (VSE++, VSRN, SCAN, ... as "
        "released) counts them as negatives",
    )


class LshSpec(HingeSpec):
    """Sum of hinges (LSH; VSE0)."""

    name: Literal["lsh"] = "lsh"


class LmhSpec(HingeSpec):
    """Max of hinges (LMH; VSE++)."""

    name: Literal["lmh"] = "lmh"
    warmup_epochs: int = Field(0, ge=0, description="first epochs that use the sum of hinges instead")


class LsehSpec(LossSpec):
    """Semantically enhanced max of hinges (LSEH; Gong and Cosma 2022, Eq. 6-8)."""

    name: Literal["lseh"] = "lseh"
    margin: float = tunable(
        0.185, Range(low=0.05, high=0.4), ge=0,
        description="alpha, in units of similarity", paper="LSEH Table 2: 0.185",
    )
    semantic_temperature: float = tunable(
        0.025, Range(low=0.005, high=0.1, log=True), ge=0,
        description="lambda, multiplies the similarity of captions", paper="LSEH Table 2: 0.025",
    )
    variant: Literal["decided", "diagonal", "released"] = Field(
        "decided",
        description="`decided` cosine, same-image captions ignored; `diagonal` cosine, they stay negatives (the "
        "paper's letter); `released` row-maximum scores, zero margin for them (the authors' code)",
    )
    warmup_epochs: int = Field(0, ge=0, description="first epochs that use the sum of hinges instead")


class TopFSpec(LossSpec):
    """Triplets over the hardest fraction f of positives and negatives, f decaying (MSE**, Eq. 1-4)."""

    name: Literal["top_f"] = "top_f"
    margin: float = tunable(
        0.2, Range(low=0.05, high=0.4), gt=0,
        description="m, in units of similarity; the loss is divided by it", paper="MSE**: 0.2",
    )
    decay: Literal["hyperbolic", "linear", "cosine"] = Field("hyperbolic", description="schedule of f from 1 to 0")
    decay_steps: int = tunable(
        10_000, Range(low=200, high=20_000, log=True, integer=True), ge=1,
        description="training steps until f reaches 0", paper="MSE**: 10,000",
    )
    sharpness: float = tunable(
        16.0, Range(low=4, high=64, log=True), ge=0,
        description="k of the hyperbolic decay (1 - s) / (1 + k s)", paper="MSE**: 16",
    )
    min_fraction: float = Field(0.0, ge=0, le=1, description="f never falls below this")
    warmup_epochs: int = Field(0, ge=0, description="first epochs that use the sum of hinges instead")


class AdaptiveMarginSpec(LossSpec):
    """Triplet hinge on distances whose two margins grow with success (Malali and Keller, Eq. 10-13)."""

    name: Literal["adaptive_margin"] = "adaptive_margin"
    margin: float = tunable(
        0.2, Range(low=0.05, high=0.3), gt=0,
        description="start of both margins, in units of distance", paper="Malali and Keller: 0.2",
    )
    growth: float = tunable(
        1.03, Range(low=1.01, high=1.1), ge=1,
        description="c, factor of one update", paper="Malali and Keller: 1.03",
    )
    ratio: float = tunable(
        0.8, Range(low=0.6, high=0.95), ge=0, le=1,
        description="r, share of triplets above which a margin grows", paper="Malali and Keller: 0.8",
    )
    interval: int = tunable(
        500, Range(low=50, high=1000, log=True, integer=True), ge=1,
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
    warmup_epochs: int = Field(0, ge=0, description="first epochs that use the sum of hinges instead")


class InfoNceSpec(LossSpec):
    """Softmax cross-entropy over the batch in both directions (InfoNCE)."""

    name: Literal["info_nce"] = "info_nce"
    softmax_temperature: float = tunable(
        0.07, Range(low=0.01, high=0.3, log=True), gt=0,
        description="t, divides similarities; the start value if learned", paper="CLIP: 0.07",
    )
    learned: bool = Field(False, description="train the temperature, capped so that 1/t <= 100")
    positives: Literal["outside", "inside"] = Field(
        "outside", description="several positives: average outside the logarithm, or sum inside it",
    )
    variant: SameImage = Field(
        "decided",
        description="`decided` removes other captions of the same image from the denominator; `diagonal` keeps them",
    )


AnyLoss = Annotated[
    LshSpec | LmhSpec | LsehSpec | TopFSpec | AdaptiveMarginSpec | InfoNceSpec, Field(discriminator="name")
]
LOSSES: dict[str, type[LossSpec]] = {
    "lsh": LshSpec, "lmh": LmhSpec, "lseh": LsehSpec, "top_f": TopFSpec,
    "adaptive_margin": AdaptiveMarginSpec, "info_nce": InfoNceSpec,
}
NEEDS_SEMANTICS = frozenset({"lseh"})
HANDLES_SEVERAL_POSITIVES = frozenset({"top_f", "info_nce"})

__all__ = [
    "HANDLES_SEVERAL_POSITIVES", "LOSSES", "NEEDS_SEMANTICS", "AdaptiveMarginSpec", "AnyLoss", "Choices",
    "HingeSpec", "InfoNceSpec", "LmhSpec", "LossSpec", "LsehSpec", "LshSpec", "TopFSpec",
]
