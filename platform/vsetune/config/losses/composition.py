"""Weighted sums of losses, written as a list in a study file."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from vsetune.config.base import Range, Spec, tunable
from vsetune.config.losses.base import LossSpec
from vsetune.config.losses.centers import SemanticCenterSpec
from vsetune.config.losses.hinges import IrtmSpec, LmhSpec, LshSpec, LuwmSpec, OrderSpec
from vsetune.config.losses.semantic import AdditiveMarginSpec, LsehSpec, ManyToManySpec
from vsetune.config.losses.several import PcmeSpec, PvseSpec
from vsetune.config.losses.softmax import InfoNceSpec, NtXentSpec
from vsetune.config.losses.triplets import AdaptiveMarginSpec, ContrastiveSpec, MarginBasedSpec, TopFSpec
from vsetune.config.networks import Kind, Score
from vsetune.config.semantics import SemanticSource

SingleLoss = Annotated[
    LshSpec | LmhSpec | LsehSpec | LuwmSpec | TopFSpec | AdaptiveMarginSpec | SemanticCenterSpec | ManyToManySpec
    | InfoNceSpec | NtXentSpec | PvseSpec | PcmeSpec | OrderSpec | IrtmSpec | ContrastiveSpec | MarginBasedSpec
    | AdditiveMarginSpec,
    Field(discriminator="name"),
]


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


AnyLoss = Annotated[
    LshSpec | LmhSpec | LsehSpec | LuwmSpec | TopFSpec | AdaptiveMarginSpec | SemanticCenterSpec | ManyToManySpec
    | InfoNceSpec | NtXentSpec | PvseSpec | PcmeSpec | OrderSpec | IrtmSpec | ContrastiveSpec | MarginBasedSpec
    | AdditiveMarginSpec | SumSpec,
    Field(discriminator="name"),
]
