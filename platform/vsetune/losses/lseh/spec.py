"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from vsetune.config.component_specs import MemorySpec, semantics_field, warmup_epochs
from vsetune.config.sources.trial_inputs import SemanticSource
from vsetune.config.spec.base import Range, tunable
from vsetune.errors import Problem


class LsehSpec(MemorySpec):
    """Semantically enhanced max of hinges (LSEH; Gong and Cosma 2022, Eq. 6-8)."""

    equation: ClassVar[str] = (
        "Q_ij = cos(V_i, V_j);  sum_i max_{j != i} [alpha + lambda Q_ij + S_ij - S_ii]+  +  "
        "sum_j max_{i != j} [alpha + lambda Q_ij + S_ij - S_jj]+"
    )
    source: ClassVar[str] = "Gong and Cosma 2022 (LSEH), Eq. 6-8"

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
    semantics: SemanticSource = semantics_field("svd")
    warmup_epochs: int = warmup_epochs()

    @property
    def semantic_source(self) -> SemanticSource | None:
        return self.semantics

    @model_validator(mode="after")
    def _released_has_no_memory(self) -> LsehSpec:
        if self.variant == "released" and self.memory_size:
            raise ValueError(Problem.of(
                "VSE-L014", "memory_size {memory_size}: variant released divides by the largest product of a batch, "
                "which a memory does not have; use variant decided or diagonal", memory_size=self.memory_size,
            ))
        return self
