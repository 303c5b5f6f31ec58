"""The search space of a cell: the domain of every searched setting, and points printed in papers."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from vsetune.config.component_specs import LOSSES, WeightedLoss
from vsetune.config.spec.base import Choices, Domain, Spec, conditions, known_name, searched_domain, tunables
from vsetune.config.spec.loading import problems_in
from vsetune.config.study.loss_settings import terms_in
from vsetune.config.study.study_entries import LossEntry, Settings
from vsetune.errors import ConfigError, Problem

Value = bool | int | float | str

Conditions = Mapping[str, Sequence[Mapping[str, Value]]]
"""For each conditional setting, by dotted name: the combinations of values of other settings under which it has an
effect. Any one of them is enough."""


@dataclass(frozen=True)
class SearchedPart:
    """A network or a loss of a cell, with what its entry in the study file fixes and searches.

    path: `network`, `loss`, or `loss.LABEL` of a term of a sum. fixed: its settings with a value. phases: the changes
    that each phase of the training makes to it. where: the place of the entry, for messages.
    """

    path: str
    spec: type[Spec]
    search: str | Mapping[str, Any]
    fixed: Mapping[str, Any]
    phases: Sequence[Mapping[str, Any]]
    where: str

    def domains(self) -> dict[str, Domain]:
        """The domain of every searched setting, by dotted name. ConfigError for a setting that cannot be searched."""
        if isinstance(self.search, str):
            names = [] if self.search == "none" else [
                name for name in self._tunable if self._ways_to_effect(name, self._tunable) and not self._is_set(name)
            ]
            return domains_of(self.path, self.spec, dict.fromkeys(names, "default"), self.where)
        search, found = dict(self.search), {}
        if self.path.count(".") and "weight" in search:
            weight = {"weight": search.pop("weight")}
            found = domains_of(self.path, WeightedLoss, weight, f"{self.where}.search")
        for name in search:
            if name in self.fixed:
                raise ConfigError(Problem.of(
                    "VSE-C014", "is also in `fixed`; keep one of them"
                ).at(f"{self.where}.search.{name}"))
            if name in self.spec.model_fields and self._is_set(name):
                raise ConfigError(Problem.of(
                    "VSE-C015", "every phase of the training sets it; leave it out here or there"
                ).at(f"{self.where}.search.{name}"))
        return found | domains_of(self.path, self.spec, search, f"{self.where}.search")

    def conditions(self, domains: Mapping[str, Domain]) -> Conditions:
        """Conditions of the searched settings that another searched setting may leave without effect.

        A setting that never has an effect gets no condition: the file lists it explicitly.
        """
        searched = {name.removeprefix(f"{self.path}.") for name in domains if name.startswith(f"{self.path}.")}
        found: dict[str, Sequence[Mapping[str, Value]]] = {}
        for name in conditions(self.spec):
            ways = self._ways_to_effect(name, searched) if name in searched else []
            if ways and {} not in ways:
                found[f"{self.path}.{name}"] = [
                    {f"{self.path}.{key}": value for key, value in way.items()} for way in ways
                ]
        return found

    @property
    def _tunable(self) -> list[str]:
        return [name for name, _ in tunables(self.spec) if name not in self.fixed]

    def _ways_to_effect(self, name: str, searched: Collection[str]) -> list[dict[str, Value]]:
        """For every phase in which the setting can matter, the values that other searched settings must have for it."""
        needed = conditions(self.spec).get(name, {})
        found = []
        for phase in self.phases or [{}]:
            open_keys = [key for key in needed if key in searched and key not in phase]
            if self._has(phase, {key: needed[key] for key in needed if key not in open_keys}):
                found.append({key: needed[key] for key in open_keys})
        return found

    def _is_set(self, name: str) -> bool:
        """Whether every phase in which the setting matters has a value of its own for it."""
        effective = [phase for phase in self.phases if self._has(phase, conditions(self.spec).get(name, {}))]
        return bool(effective) and all(name in phase for phase in effective)

    def _has(self, phase: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
        """Whether the settings have these values in a phase."""
        given, fields = {**self.fixed, **phase}, self.spec.model_fields
        return all(given.get(key, fields[key].default) == value for key, value in values.items())


def phase_changes(training: Mapping[str, Any], part: Literal["loss", "network"]) -> list[Mapping[str, Any]]:
    """The changes of each phase of a training (plain data) to the loss or to the network."""
    listed = training.get("phases")  # an entry that is not a list or mapping here is refused with its key later on
    return [
        changes for phase in (listed if isinstance(listed, list) else []) if isinstance(phase, Mapping)
        and isinstance(changes := phase.get(part, {}), Mapping)
    ]


def loss_parts(
    entry: LossEntry, plain_loss: Mapping[str, Any], training: Mapping[str, Any], where: str
) -> Iterator[SearchedPart]:
    """The loss of a cell, or every term of a sum. Includes the values that phases set."""
    terms: Sequence[Settings] = entry.loss or [entry]
    for number, (term, (label, plain)) in enumerate(zip(terms, terms_in(plain_loss).items(), strict=True)):
        phases = phase_changes(training, "loss")
        if label:
            phases = [found for each in phases if isinstance(found := each.get(label, {}), Mapping)]
        path, at = (f"loss.{label}", f"{where}.loss[{number}]") if label else ("loss", where)
        fixed = {name: value for name, value in plain.items() if name != "name"}
        yield SearchedPart(path, LOSSES[plain["name"]], term.search, fixed, phases, at)


def domains_of(part: str, spec: type[Spec], wanted: Mapping[str, Any], where: str) -> dict[str, Domain]:
    declared = dict(tunables(spec))
    domains: dict[str, Domain] = {}
    for name, domain in wanted.items():
        try:
            known_name(name, spec.model_fields.keys() - {"name"}, "hyperparameter")
        except ValueError as error:
            raise ConfigError(problems_in(error)[0].at(where)) from error
        if domain == "default":
            if name not in declared:
                raise ConfigError(Problem.of(
                    "VSE-C016", "has no default range; give low and high, or choices"
                ).at(f"{where}.{name}"))
            domain = declared[name]
        try:
            domains[f"{part}.{name}"] = searched_domain(spec, name, domain)
        except ValueError as error:
            problem = problems_in(error)[0]
            raise ConfigError(problem.worded(f"{where}.{problem}")) from error
    return domains


def values_to_check(domain: Domain) -> Sequence[Value]:
    """The choices, or both ends of a range."""
    if isinstance(domain, Choices):
        return domain.choices
    return [int(domain.low), int(domain.high)] if domain.integer else [domain.low, domain.high]


def contains(domain: Domain, value: Any) -> bool:
    """Whether a search of the domain can sample this value."""
    if isinstance(domain, Choices):
        return value in domain.choices
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and domain.low <= value <= domain.high and (not domain.integer or float(value).is_integer())


def clipped(value: Any, domain: Domain) -> Value:
    """The value if the domain has it, else the nearest one in it (of choices the first)."""
    if isinstance(domain, Choices):
        return value if value in domain.choices else domain.choices[0]
    if value is None:
        value = domain.low
    clipped = min(max(value, domain.low), domain.high)
    return round(clipped) if domain.integer else float(clipped)


_FOLDER = "published"
_KEYS = ("network", "loss", "data_set", "source")


@dataclass(frozen=True)
class PublishedPoint:
    """settings: by dotted name, as printed. source: paper, table and row."""

    network: str
    loss: str
    data_set: str
    source: str
    settings: Mapping[str, float]


@cache
def tables() -> Mapping[str, tuple[PublishedPoint, ...]]:
    """Each published table by name, and each of its data sets as `name.data_set`."""
    found: dict[str, tuple[PublishedPoint, ...]] = {}
    for file in sorted(files(__package__).joinpath(_FOLDER).iterdir(), key=lambda each: each.name):
        name, _, kind = file.name.rpartition(".")
        if kind != "csv":
            continue
        found[name] = tuple(map(_point, csv.DictReader(file.read_text(encoding="utf-8").splitlines())))
        for data_set in dict.fromkeys(point.data_set for point in found[name]):
            found[f"{name}.{data_set}"] = tuple(point for point in found[name] if point.data_set == data_set)
    return found


def known_table(name: str) -> str:
    """`name` if there is such a table; otherwise a ValueError that lists all tables."""
    return known_name(name, tables(), "table of published settings")


def _point(row: Mapping[str, str]) -> PublishedPoint:
    settings = {name: float(value) for name, value in row.items() if name not in _KEYS and value}
    return PublishedPoint(row["network"], row["loss"], row["data_set"], row["source"], settings)
