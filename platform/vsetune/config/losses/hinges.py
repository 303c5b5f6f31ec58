"""Hinge losses on similarities: sum, maximum, universal weighting, order embeddings, mean of the hardest."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.base import Range, tunable
from vsetune.config.losses.base import LossSpec, MemorySpec, warmup_epochs
from vsetune.config.networks import Score

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


class LshSpec(HingeSpec):
    """Sum of hinges (LSH; VSE0)."""

    equation: ClassVar[str] = (
        "sum_i sum_{j != i} [m + S_ij - S_ii]+  +  sum_j sum_{i != j} [m + S_ij - S_jj]+"
    )
    source: ClassVar[str] = "Kiros et al. 2014; Faghri et al. 2018 (VSE++), Eq. 5"

    name: Literal["lsh"] = "lsh"


class LmhSpec(HingeSpec):
    """Max of hinges (LMH; VSE++)."""

    equation: ClassVar[str] = (
        "sum_i max_{j != i} [m + S_ij - S_ii]+  +  sum_j max_{i != j} [m + S_ij - S_jj]+"
    )
    source: ClassVar[str] = "Faghri et al. 2018 (VSE++), Eq. 6; Gong and Cosma 2022 (LSEH), Eq. 2"

    name: Literal["lmh"] = "lmh"
    warmup_epochs: int = warmup_epochs()


class LuwmSpec(HingeSpec):
    """Universal weighting of the positive and the hardest negative, polynomial form (LUWM)."""

    equation: ClassVar[str] = (
        "1/B sum over the 2 B queries with p < 1 - eps and h + m > p of [a0 + a1 p + a2 p^2]+ + [b0 + b1 h + b2 h^2]+, "
        "p = similarity of the pair, h = that of the hardest negative"
    )
    source: ClassVar[str] = "Wei et al. 2020, as released for SCAN; LSEH's comparison (Fig. 6, Table 3)"
    several_positives: ClassVar[bool] = False
    scores: ClassVar[frozenset[Score]] = frozenset({"cosine", "probability"})

    name: Literal["luwm"] = "luwm"
    positive_constant: float = tunable(
        0.5, Range(low=0.2, high=1.0), description="a0; fitted per data set", paper="released code, Flickr30K: 0.5")
    positive_slope: float = tunable(
        -0.7, Range(low=-1.5, high=-0.2), description="a1; fitted per data set", paper="released code: -0.7")
    positive_curvature: float = tunable(
        0.2, Range(low=0.0, high=0.8), description="a2; fitted per data set", paper="released code: 0.2")
    negative_constant: float = tunable(
        0.03, Range(low=0.0, high=0.2), description="b0; fitted per data set", paper="released code: 0.03")
    negative_slope: float = tunable(
        -0.4, Range(low=-1.0, high=0.5), description="b1; fitted per data set", paper="released code: -0.4")
    negative_curvature: float = tunable(
        0.9, Range(low=0.3, high=2.0), description="b2; fitted per data set", paper="released code: 0.9")
    epsilon: float = Field(1e-5, ge=0, description="eps: pairs more similar than 1 - eps are not used")
    one_sided: bool = Field(
        False,
        description="zero the negative term where it falls (left of its vertex -b1 / (2 b2) = 0.2222), where descent "
        "would raise the similarity of a negative; our addition",
    )
    allow_unbounded: bool = Field(
        False,
        description="accept networks with unbounded scores (SCAN, GSMN, as in the released code), although a pair that "
        "scores above 1 then takes no part",
    )
    warmup_epochs: int = warmup_epochs()

    @property
    def needed_scores(self) -> frozenset[Score]:
        scores = super().needed_scores
        return scores | {"unbounded"} if self.allow_unbounded and not self.memory_size else scores


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
