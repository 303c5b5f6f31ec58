"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.component_specs import warmup_epochs
from vsetune.config.spec.base import Range, Score, tunable
from vsetune.losses.parts.spec_fields import HingeSpec


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
