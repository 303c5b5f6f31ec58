"""Entries of a study file: networks, losses and weighted sums of them, and changes to single cells."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from vsetune.config.component_specs import LOSSES, NETWORKS
from vsetune.config.spec.base import FreeKeys, FreeSettings, Name, SearchDomain, Spec, known_name, listed_twice
from vsetune.config.study.training import TrainingSpec
from vsetune.errors import Problem

_LONGEST_CELL = 100

SearchOf = Annotated[
    Annotated[Literal["default", "none"], Tag("Word")] | Annotated[dict[str, SearchDomain], Tag("Mapping")],
    Discriminator(lambda value: "Mapping" if isinstance(value, dict | list) else "Word"),
]


LossName = Annotated[str, AfterValidator(lambda name: known_name(name, LOSSES, "loss"))]
NetworkName = Annotated[str, AfterValidator(lambda name: known_name(name, NETWORKS, "network"))]


class Settings(Spec):
    """Settings of a network or a loss in a study file: held at a value, or searched."""

    label: Name | None = Field(None, description="name in cells; default: name")
    fixed: FreeSettings = Field(default_factory=dict, description="hyperparameters with a fixed value")
    search: SearchOf = Field("none", description="`default`: every tunable at its declared range; `none`; or a mapping")


class NetworkEntry(Settings):
    """A network of the comparison."""

    free_keys: ClassVar[FreeKeys] = {"fixed": NETWORKS, "training": TrainingSpec}

    name: NetworkName
    training: dict[str, Any] = Field(default_factory=dict, description="changes to `training` for this entry")

    @property
    def cell_name(self) -> str:
        return self.label or self.name


class LossPart(Settings):
    """One term of a weighted sum of losses; it is logged under its label."""

    free_keys: ClassVar[FreeKeys] = {"fixed": LOSSES}

    name: LossName
    weight: float = Field(1.0, gt=0, description="factor in the sum; `search: {weight: default}` searches it")
    search: SearchOf = Field("default", description="`default`: every tunable but the weight; `none`; or a mapping")

    @property
    def part_name(self) -> str:
        return self.label or self.name


class LossEntry(Settings):
    """A loss of the comparison, or a weighted sum of losses (`loss: [...]`)."""

    free_keys: ClassVar[FreeKeys] = {"fixed": LOSSES, "training": TrainingSpec, "network": NETWORKS}

    name: LossName | None = Field(None, description="a loss; or leave it out and list several under `loss`")
    loss: list[LossPart] = Field(default_factory=list, max_length=50, description="parts of a weighted sum")
    search: SearchOf = Field("default", description=Settings.model_fields["search"].description)
    training: dict[str, Any] = Field(default_factory=dict, description="changes to `training` for this entry")
    network: FreeSettings = Field(
        default_factory=dict, description="changes to the networks for this loss, e.g. similarity: order",
    )

    @property
    def cell_name(self) -> str:
        return self.label or self.name or "_".join(part.part_name for part in self.loss)

    @model_validator(mode="after")
    def _one_loss_or_a_sum(self) -> LossEntry:
        if (self.name is None) == (not self.loss):
            got = "both `name` and `loss`" if self.loss else "neither `name` nor losses under `loss`"
            raise ValueError(Problem.of(
                "VSE-C040", "got {got}, need either `name` of one loss, or `loss` with a list of losses to add",
                got=got,
            ))
        if self.loss and (self.fixed or self.search != "default"):
            raise ValueError(Problem.of("VSE-C041", "`fixed` and `search` of a sum belong to its parts under `loss`"))
        repeated = listed_twice([part.part_name for part in self.loss], fix="give one of them a `label`")
        if repeated is not None:
            raise ValueError(repeated)
        if len(self.cell_name) > _LONGEST_CELL:
            raise ValueError(Problem.of(
                "VSE-C042", "a name of {length} characters from its parts, need a shorter `label`",
                length=len(self.cell_name),
            ))
        return self


class Override(Spec):
    """Settings for one network x loss pair; wins over the entries of either."""

    free_keys: ClassVar[FreeKeys] = {"fixed": LOSSES, "training": TrainingSpec}

    network: str = Field(max_length=100, description="cell name of a network entry")
    loss: str = Field(max_length=100, description="cell name of a loss entry")
    fixed: FreeSettings = Field(default_factory=dict, description="hyperparameters of the loss; of a sum: by part")
    training: dict[str, Any] = Field(default_factory=dict)
