"""A nightly sweep: which cells run every night, on what, what counts as a change. One YAML file, one NightlySpec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from vsetune.config.spec.base import Name, Seed, Spec
from vsetune.config.spec.paths import PathText
from vsetune.config.study.evaluation_settings import EvaluationSpec
from vsetune.config.study.resources import ResourceSpec
from vsetune.config.study.study_entries import LossEntry, NetworkEntry, Override
from vsetune.config.study.study_spec import SchedulerSpec, SearchSpec, StudyDataSpec, StudySpec, TrackingSpec
from vsetune.config.study.training import TrainingSpec
from vsetune.files.hashes import sha256_hex
from vsetune.jobs.study_file import load_sweep
from vsetune.nightly.report_spec import ReportSpec
from vsetune.nightly.tolerances import Tolerances

_NO_SETTINGS = {"nightly", "description", "plugins", "tracking", "tolerances", "report"}
"""Of what a night gives none of these decides anything."""


class FirstSteps(Spec):
    """The steps whose losses must stay the same, bit for bit: in a process of their own, on one thread."""

    steps: int = Field(20, ge=1, le=1000, description="training steps per cell")
    seed: Seed = Field(0, description="the same every night")


class NightlySpec(Spec):
    """Cells that run every night with fixed hyperparameters and fresh seeds, held against their own history."""

    nightly: Name = Field(max_length=80, description="unique name; the history stands in VSETUNE_HOME/nightly/NAME")
    description: str = Field("", max_length=4000)
    plugins: list[PathText] = Field(
        default_factory=list, max_length=100, description=StudySpec.model_fields["plugins"].description,
    )
    data: StudyDataSpec
    networks: list[NetworkEntry] = Field(min_length=1, max_length=100)
    losses: list[LossEntry] = Field(min_length=1, max_length=100)
    overrides: list[Override] = Field(default_factory=list, max_length=1000)
    cells: list[str] | None = Field(
        None, min_length=1, max_length=10_000, description=StudySpec.model_fields["cells"].description,
    )
    training: TrainingSpec = TrainingSpec()
    evaluation: EvaluationSpec = EvaluationSpec()
    resources: ResourceSpec = ResourceSpec()
    tracking: TrackingSpec = TrackingSpec()
    target: float = Field(40.0, gt=0, le=100, description="M-Recall in per cent, for `epochs_to_target`")
    seeds: int = Field(1, ge=1, le=100, description="trials per cell and night; their seeds are drawn from the date")
    first_steps: FirstSteps = FirstSteps()
    tolerances: Tolerances = Tolerances()
    report: ReportSpec = ReportSpec()

    @model_validator(mode="after")
    def _makes_a_study(self) -> NightlySpec:
        for key, entries in (("networks", self.networks), ("losses", self.losses)):
            for number, entry in enumerate(entries):
                parts = entry.loss if isinstance(entry, LossEntry) else []
                for each in (entry, *parts):
                    if "search" in each.model_fields_set and each.search != "none":
                        raise ValueError(f"{key}[{number}].search: a nightly sweep searches nothing; remove it")
        try:
            self.study("check", [0])
        except ValidationError as error:
            told = "; ".join(each["msg"].removeprefix("Value error, ") for each in error.errors())
            raise ValueError(told) from error
        return self

    def study(self, name: str, seeds: list[int]) -> StudySpec:
        """The study of one night: every cell once per seed at its hyperparameters, none stopped early."""
        return StudySpec(
            study=name, description=self.description, plugins=self.plugins, data=self.data, networks=self.networks,
            losses=[_fixed(entry) for entry in self.losses], overrides=self.overrides, cells=self.cells,
            baseline=self.losses[0].cell_name, training=self.training, evaluation=self.evaluation,
            search=SearchSpec(configurations=1),
            scheduler=SchedulerSpec(kind="none", grace_epochs=self.training.epochs),
            seeds=seeds, resources=self.resources, tracking=self.tracking,
        )

    def seeds_of(self, date: str) -> list[int]:
        """The night's seeds: others every night, the same when a night is run again."""
        return [int(sha256_hex(f"{self.nightly} {date} {n}".encode())[:8], 16) for n in range(self.seeds)]

    def settings(self) -> dict[str, Any]:
        """What the file says that decides numbers, by key. Defaults of the code are not in it: a changed default is a
        change of the code, which a night must find."""
        said = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        said["data"] = {key: value for key, value in said["data"].items() if key != "path"}
        return {key: value for key, value in said.items() if key not in _NO_SETTINGS}


def load_nightly(path: Path) -> NightlySpec:
    """A nightly sweep from its file, once the plugins it names are known. ConfigError lists every problem with its key;
    every line opens with the path."""
    return load_sweep(path, NightlySpec)


def _fixed(entry: LossEntry) -> LossEntry:
    parts = [part.model_copy(update={"search": "none"}) for part in entry.loss]
    return entry.model_copy(update={"loss": parts} | ({} if parts else {"search": "none"}))
