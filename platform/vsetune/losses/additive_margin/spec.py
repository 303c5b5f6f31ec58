"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.component_specs import LossSpec, semantics_field
from vsetune.config.sources.trial_inputs import SemanticSource
from vsetune.config.spec.base import ALL_SCORES, Range, Score, tunable


class AdditiveMarginSpec(LossSpec):
    """Softmax with a margin that grows with the similarity of captions (Li et al. 2020); our adaptation to pairs."""

    equation: ClassVar[str] = (
        "mean over queries of -log softmax of the pair among (S_ij + m_ij [j != i]) / t,  m_ij = u Q_ij + v,  "
        "u and v learned; mean of both directions"
    )
    source: ClassVar[str] = "Li et al. 2020 (class-relevant additive margin); in Malali and Keller, Table 11"
    scores: ClassVar[frozenset[Score]] = ALL_SCORES - {"order"}

    name: Literal["additive_margin"] = "additive_margin"
    slope: float = tunable(0.1, Range(low=0.0, high=0.3), description="start of u", paper="our choice")
    intercept: float = tunable(0.05, Range(low=0.0, high=0.2), description="start of v", paper="our choice")
    learned: bool = Field(True, description="train u and v; false keeps them")
    softmax_temperature: float = tunable(
        0.1, Range(low=0.01, high=0.3, log=True), gt=0, description="t, divides similarities", paper="our choice",
    )
    semantics: SemanticSource = semantics_field("svd")

    @property
    def semantic_source(self) -> SemanticSource | None:
        return self.semantics
