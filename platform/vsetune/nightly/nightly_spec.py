"""A nightly sweep: its cells, data, the changes that matter, and its reports. One YAML file is one sweep."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from vsetune.config.spec.base import Name, Seed, Spec, known_name
from vsetune.config.study.evaluation_settings import EvaluationSpec
from vsetune.config.study.resources import ResourceSpec
from vsetune.config.study.study_entries import LossEntry, NetworkEntry, Override
from vsetune.config.study.study_spec import SchedulerSpec, SearchSpec, StudyDataSpec, StudySpec, TrackingSpec
from vsetune.config.study.training import TrainingSpec
from vsetune.errors import Message, Problem
from vsetune.home.addresses import shown_url
from vsetune.home.hashes import sha256_hex
from vsetune.home.paths import PathText
from vsetune.nightly.night import BY_NAME, Measure
from vsetune.study.study_file import load_sweep

_WRONG_VALUE = Message("VSE-G002", "got {got}, need {need}")
WRONG_OPTION = Message("VSE-G001", "{option}: got {got}, need {need}")

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _variable(text: str) -> str:
    if not _VARIABLE.fullmatch(text):
        need = "the name of an environment variable such as SLACK_WEBHOOK, since the address is a secret"
        shown = "an address" if "://" in text else repr(text[:30])
        raise ValueError(_WRONG_VALUE(got=shown, need=need))
    return text


def _page(text: str) -> str:
    if not text.startswith(("https://", "http://")) or not text.isprintable() or set(text) & set(" <>\"|"):
        need = "an address that begins with https:// or http://, without blanks, quotes, < > or |"
        raise ValueError(_WRONG_VALUE(got=repr(shown_url(text)[:60]), need=need))
    return text


class ReportSpec(Spec):
    """Where a report goes besides its files. Secrets and servers come from the environment alone; a Prometheus
    Pushgateway is VSETUNE_PUSHGATEWAY."""

    webhook: Annotated[str, AfterValidator(_variable)] | None = Field(
        None, description="variable with an address: https://... that takes Slack's JSON, or one of Apprise"
    )
    notify: Literal["regressions", "always", "never"] = Field(
        "regressions", description="when the webhook is used: exit code 1 or 2, every night, or not at all"
    )
    mlflow: bool = Field(True, description="keep a run per night in the experiment nightly/NAME")
    page_url: Annotated[str, AfterValidator(_page)] | None = Field(
        None, description="where people find the page, for links; {date} and {name} are filled in"
    )


_NIGHTS_A_MONTH = 30
_FEWEST_NIGHTS, _MOST_NIGHTS = 2, 3650
_RATE = re.compile(r"one in (\d{1,6}) nights|(\d{1,6}) a month")
_PER_CENT = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) ?%")


class Tolerances(Spec):
    """How often a quiet sweep may raise an alarm, and which changes are too small to matter."""

    false_alarms: str = Field(
        "one in 30 nights", max_length=60,
        description="promise for the whole report: `one in N nights`, or `N a month` (of 30 nights)",
    )
    baseline_nights: int = Field(7, ge=3, le=60, description="nights before verdicts are given; a band is of 60")
    smallest_change: dict[str, float | str] = Field(
        default_factory=dict, max_length=100,
        description="smallest change that matters, by measure: a number in its unit, or `5 %` of times, rates, memory",
    )

    @field_validator("false_alarms")
    @classmethod
    def _is_a_rate(cls, text: str) -> str:
        nights_per_false_alarm(text)
        return text

    @field_validator("smallest_change", mode="before")
    @classmethod
    def _is_a_change(cls, given: Any) -> Any:
        if isinstance(given, dict):
            for name, value in given.items():
                change_of(BY_NAME[known_name(str(name), BY_NAME, "measure")], value)
        return given

    @property
    def false_alarm_nights(self) -> float:
        """Average number of nights per false alarm allowed for the whole report."""
        return nights_per_false_alarm(self.false_alarms)

    def smallest_change_of(self, measure: Measure) -> float:
        """Smallest change of a measure that matters: in its unit where linear, a fraction where ratio."""
        given = self.smallest_change.get(measure.name)
        return measure.smallest_change if given is None else change_of(measure, given)


def nights_per_false_alarm(text: str) -> float:
    """`one in 30 nights` is 30, `2 a month` is 15. ValueError for anything else."""
    rate = _RATE.fullmatch(" ".join(text.split()).lower())
    if rate is None or not int(rate[1] or rate[2]):
        need = "`one in N nights` or `N a month`, such as `one in 30 nights`"
        raise ValueError(_WRONG_VALUE(got=repr(text), need=need))
    nights = float(rate[1]) if rate[1] else _NIGHTS_A_MONTH / int(rate[2])
    if not _FEWEST_NIGHTS <= nights <= _MOST_NIGHTS:
        need = f"between one in {_FEWEST_NIGHTS} and one in {_MOST_NIGHTS} nights"
        raise ValueError(_WRONG_VALUE(got=repr(text), need=need))
    return nights


def change_of(measure: Measure, given: Any) -> float:
    """A smallest change as a number: in the unit of a linear measure, a fraction of a ratio. ValueError otherwise."""
    share = _PER_CENT.fullmatch(given.strip()) if isinstance(given, str) else None
    is_share = measure.scale == "ratio" or measure.unit == "share"
    value = math.nan
    if is_share and share is not None:
        value = float(share[1]) / 100
    elif not is_share and isinstance(given, int | float) and not isinstance(given, bool):
        value = float(given)
    if not (math.isfinite(value) and value > 0):
        usual = f"a number of {measure.unit} above 0, such as {measure.smallest_change:g}"
        need = "per cent above 0, such as 5 %" if is_share else usual
        raise ValueError(WRONG_OPTION(option=measure.name, got=repr(given), need=need))
    return value


_NO_SETTINGS = {"nightly", "description", "plugins", "tracking", "tolerances", "report"}
"""Keys that do not affect the numbers of a night."""


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
    seeds: int = Field(1, ge=1, le=100, description="trials per cell and night; their seeds come from the date")
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
                        raise ValueError(Problem.of(
                            "VSE-G003", "{key}.search: a nightly sweep searches nothing; remove it",
                            key=f"{key}[{number}]",
                        ))
        try:
            self.study("check", [0])
        except ValidationError as error:
            raise ValueError("; ".join(each["msg"].removeprefix("Value error, ") for each in error.errors())) from error
        return self

    def study(self, name: str, seeds: list[int]) -> StudySpec:
        """The study of one night: every cell once per seed at its hyperparameters, none stopped early."""
        return StudySpec(
            study=name, description=self.description, plugins=self.plugins, data=self.data, networks=self.networks,
            losses=[_fixed(entry) for entry in self.losses], overrides=self.overrides, cells=self.cells,
            baseline=self.losses[0].cell_name, training=self.training, evaluation=self.evaluation,
            search=SearchSpec(configurations=1),
            scheduler=SchedulerSpec(kind="none", grace_epochs=self.training.epochs or None),
            seeds=seeds, resources=self.resources, tracking=self.tracking,
        )

    def seeds_of(self, date: str) -> list[int]:
        """The night's seeds: different every night, the same when a night is run again."""
        return [int(sha256_hex(f"{self.nightly} {date} {n}".encode())[:8], 16) for n in range(self.seeds)]

    def settings(self) -> dict[str, Any]:
        """Settings in the file that affect numbers, by key. Defaults of the code are not included: a changed default is
        a change of the code, which a night must find."""
        given = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        given["data"] = {key: value for key, value in given["data"].items() if key != "path"}
        return {key: value for key, value in given.items() if key not in _NO_SETTINGS}


def load_nightly(path: Path) -> NightlySpec:
    """Load a nightly sweep from its file, after the plugins it names. ConfigError lists every problem with its key;
    every line starts with the path."""
    return load_sweep(path, NightlySpec)


def _fixed(entry: LossEntry) -> LossEntry:
    parts = [part.model_copy(update={"search": "none"}) for part in entry.loss]
    return entry.model_copy(update={"loss": parts} | ({} if parts else {"search": "none"}))
