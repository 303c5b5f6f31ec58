"""The search space of a cell: the domain of every searched setting, and points printed in papers."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from vsetune.config.component_specs import LOSSES, WeightedLoss
from vsetune.config.spec.base import Choices, Domain, Spec, conditions, known_name, searched_domain, tunables
from vsetune.config.study.study_entries import LossEntry, Settings
from vsetune.errors import ConfigError

Value = bool | int | float | str

Conditions = Mapping[str, Sequence[Mapping[str, Value]]]
"""For each searched setting, by dotted name, that matters only at certain values of other searched settings: the
mappings of those values by dotted name. One matching mapping is enough."""


def loss_domains(
    entry: LossEntry, plain_loss: Mapping[str, Any], training: Mapping[str, Any], where: str
) -> dict[str, Domain]:
    """Domains of a loss, or of every part of a sum. A setting that phases change is considered at all its values."""
    phases = phase_changes(training, "loss")
    if entry.name is not None:
        return entry_domains("loss", LOSSES[entry.name], entry, _without_name(plain_loss), where, phases)
    domains: dict[str, Domain] = {}
    for number, part in enumerate(entry.loss):
        plain, label = plain_loss["parts"][part.part_name], part.part_name
        changes = [found for phase in phases if isinstance(found := phase.get(label, {}), Mapping)]
        at = f"{where}.loss[{number}]"
        search = part.search
        if isinstance(search, dict) and "weight" in search:
            domains |= domains_of(f"loss.{label}", WeightedLoss, {"weight": search["weight"]}, f"{at}.search")
            part = part.model_copy(update={"search": {name: search[name] for name in search if name != "weight"}})
        domains |= entry_domains(
            f"loss.{label}", LOSSES[part.name], part, _without_name(plain["loss"]), at, changes
        )
    return domains


def phase_changes(training: Mapping[str, Any], part: Literal["loss", "network"]) -> list[Mapping[str, Any]]:
    """The changes of each phase of a training (plain data) to the loss or to the network."""
    listed = training.get("phases")  # an entry that is not a list or mapping here is refused with its key later on
    return [
        changes for phase in (listed if isinstance(listed, list) else []) if isinstance(phase, Mapping)
        and isinstance(changes := phase.get(part, {}), Mapping)
    ]


def _without_name(plain: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in plain.items() if name != "name"}


def entry_domains(
    part: str, spec: type[Spec], entry: Settings, fixed: Mapping[str, Any], where: str,
    phases: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Domain]:
    if entry.search == "none":
        return {}
    if entry.search == "default":
        return {
            f"{part}.{name}": domain for name, domain in tunables(spec)
            if name not in fixed and _may_have_effect(spec, name, fixed, phases)
            and not _always_overridden(spec, name, fixed, phases)
        }
    for name in entry.search:
        if name in fixed:
            raise ConfigError(f"{where}.search.{name}: is also in `fixed`; keep one of them")
        if name in spec.model_fields and _always_overridden(spec, name, fixed, phases):
            raise ConfigError(f"{where}.search.{name}: every phase of the training sets it; leave it out here or there")
    return domains_of(part, spec, entry.search, f"{where}.search")


def _may_have_effect(
    spec: type[Spec], name: str, fixed: Mapping[str, Any], phases: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether a setting declared with `when` may matter: a phase of the training has those values, or may sample them.
    """
    searched = {key for key, _ in tunables(spec) if key not in fixed}
    return bool(_ways_to_effect(spec, name, fixed, phases, searched))


def conditions_of(
    part: str, spec: type[Spec], fixed: Mapping[str, Any], phases: Sequence[Mapping[str, Any]],
    domains: Mapping[str, Domain],
) -> Conditions:
    """Conditions of the searched settings of a part that another searched setting may leave without effect.

    A setting without effect under any sample was searched on purpose, and stays.
    """
    searched = {name.removeprefix(f"{part}.") for name in domains if name.startswith(f"{part}.")}
    found: dict[str, Sequence[Mapping[str, Value]]] = {}
    for name in conditions(spec):
        ways = _ways_to_effect(spec, name, fixed, phases, searched) if name in searched else []
        if ways and {} not in ways:
            found[f"{part}.{name}"] = [{f"{part}.{key}": value for key, value in way.items()} for way in ways]
    return found


def _ways_to_effect(
    spec: type[Spec], name: str, fixed: Mapping[str, Any], phases: Sequence[Mapping[str, Any]], searched: set[str]
) -> list[dict[str, Value]]:
    """For every phase in which the setting can matter, the values that other searched settings must have for it."""
    found = []
    for phase in phases or [{}]:
        held = {**fixed, **phase}
        needed = conditions(spec).get(name, {})
        open_keys = [key for key in needed if key in searched and key not in phase]
        if all(held.get(key, spec.model_fields[key].default) == needed[key] for key in needed if key not in open_keys):
            found.append({key: needed[key] for key in open_keys})
    return found


def _always_overridden(
    spec: type[Spec], name: str, fixed: Mapping[str, Any], phases: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether every phase in which the setting matters has a value of its own for it."""
    effective = _phases_with_effect(spec, name, fixed, phases)
    return bool(effective) and all(name in phase for phase in effective)


def _phases_with_effect(
    spec: type[Spec], name: str, fixed: Mapping[str, Any], phases: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    needed = conditions(spec).get(name, {})
    return [
        phase for phase in phases
        if all({**fixed, **phase}.get(key, spec.model_fields[key].default) == value for key, value in needed.items())
    ]


def domains_of(part: str, spec: type[Spec], wanted: Mapping[str, Any], where: str) -> dict[str, Domain]:
    declared = dict(tunables(spec))
    domains: dict[str, Domain] = {}
    for name, domain in wanted.items():
        try:
            known_name(name, spec.model_fields.keys() - {"name"}, "hyperparameter")
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from error
        if domain == "default":
            if name not in declared:
                raise ConfigError(f"{where}.{name}: has no default range; give low and high, or choices")
            domain = declared[name]
        try:
            domains[f"{part}.{name}"] = searched_domain(spec, name, domain)
        except ValueError as error:
            raise ConfigError(f"{where}.{error}") from error
    return domains


def loss_conditions(
    entry: LossEntry, plain_loss: Mapping[str, Any], training: Mapping[str, Any], domains: Mapping[str, Domain]
) -> Conditions:
    """Conditions of a loss, or of every part of a sum."""
    phases = phase_changes(training, "loss")
    if entry.name is not None:
        return conditions_of("loss", LOSSES[entry.name], _without_name(plain_loss), phases, domains)
    found: dict[str, Sequence[Mapping[str, Value]]] = {}
    for part in entry.loss:
        label = part.part_name
        changes = [of for phase in phases if isinstance(of := phase.get(label, {}), Mapping)]
        fixed = _without_name(plain_loss["parts"][label]["loss"])
        found |= conditions_of(f"loss.{label}", LOSSES[part.name], fixed, changes, domains)
    return found


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
    """Every table and its parts by data set, under their names."""
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
