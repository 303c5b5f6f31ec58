"""Weighted sums of losses, written as a list in a study file."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, SerializeAsAny, model_validator

from vsetune.config.components.catalogue import selected_by_name
from vsetune.config.loss_spec import LOSSES, DrawnNegatives, LossSpec
from vsetune.config.sources.inputs import SemanticSource
from vsetune.config.spec.base import Kind, Range, Score, Spec, tunable

SUM = "sum"

SingleLoss = Annotated[SerializeAsAny[LossSpec], selected_by_name(lambda: LOSSES)]


class WeightedLoss(Spec):
    """One term of a sum."""

    weight: float = tunable(
        1.0, Range(low=0.01, high=10, log=True), gt=0,
        description="factor of this loss in the sum", paper="our addition",
    )
    loss: SingleLoss


class SumSpec(LossSpec):
    """Weighted sum of losses on the same batch; every part is logged by its name, before its weight."""

    equation: ClassVar[str] = "sum over parts of weight x loss"
    source: ClassVar[str] = "composition in the study file"

    name: Literal["sum"] = "sum"
    parts: dict[str, WeightedLoss] = Field(min_length=1, description="losses by the name they are logged under")

    @property
    def semantic_source(self) -> SemanticSource | None:
        return next((part.loss.semantic_source for part in self.parts.values() if part.loss.semantic_source), None)

    @property
    def drawn_negatives(self) -> DrawnNegatives | None:
        return next((part.loss.drawn_negatives for part in self.parts.values() if part.loss.drawn_negatives), None)

    @property
    def needed_kinds(self) -> frozenset[Kind]:
        return frozenset.intersection(*(part.loss.needed_kinds for part in self.parts.values()))

    @property
    def needed_scores(self) -> frozenset[Score]:
        return frozenset.intersection(*(part.loss.needed_scores for part in self.parts.values()))

    @model_validator(mode="after")
    def _one_source_of_semantics(self) -> SumSpec:
        sources = {part.loss.semantic_source for part in self.parts.values()} - {None}
        if len(sources) > 1:
            reading = {name: part.loss.semantic_source for name, part in self.parts.items()}
            names = ", ".join(f"{name}: {source}" for name, source in reading.items() if source)
            raise ValueError(f"parts read different semantic vectors ({names}); set `semantics` of them to the same")
        return self

    @model_validator(mode="after")
    def _one_draw(self) -> SumSpec:
        draws = {part.loss.drawn_negatives for part in self.parts.values()} - {None}
        if len(draws) > 1:
            counts = " and ".join(sorted(f"{each.count}, hardest {each.hardest}" for each in draws if each is not None))
            raise ValueError(f"parts draw different negatives ({counts}); set `drawn` and `hardest` of them alike")
        return self


AnyLoss = Annotated[SerializeAsAny[LossSpec], selected_by_name(lambda: {**LOSSES, SUM: SumSpec})]
