"""A study resolved into its cells (data set x network x loss) and a cell into trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from vsetune.config.base import Choices, Domain, Range, Spec, conditions, known_name, tunables
from vsetune.config.loading import describe_problems
from vsetune.config.loss_settings import (
    SUM,
    as_settings,
    loss_settings_of,
    loss_type,
    setting,
    with_setting,
    with_settings,
)
from vsetune.config.losses import LOSSES, WeightedLoss
from vsetune.config.networks import NETWORKS
from vsetune.config.study import LossEntry, NetworkEntry, Override, Settings, StudySpec
from vsetune.config.training import DataSpec, TrainingSpec, TrialSpec
from vsetune.errors import ConfigError

Configuration = Mapping[str, bool | int | float | str]
"""Values drawn from a cell's domains by dotted name, such as `loss.margin` or `training.learning_rate`."""


@dataclass(frozen=True)
class Cell:
    """One network with one loss: what is fixed, and the domain of everything searched.

    network, loss, training: plain data with `name`; a value drawn for a domain replaces the one here.
    domains: dotted name to Range or Choices, in a stable order.
    """

    name: str
    network_name: str
    loss_name: str
    network: Mapping[str, Any]
    loss: Mapping[str, Any]
    training: Mapping[str, Any]
    domains: Mapping[str, Domain]

    def defaults(self) -> dict[str, bool | int | float | str]:
        """The value of every searched parameter before the search: the paper's, clipped to its range."""
        parts: dict[str, Spec] = {
            "network": NETWORKS[self.network["name"]].model_validate(self.network),
            "training": TrainingSpec.model_validate(self.training),
        }
        loss = loss_type(self.loss).model_validate(self.loss)
        values = {}
        for name, domain in self.domains.items():
            part, field = name.split(".", 1)
            value = setting(loss, field) if part == "loss" else getattr(parts[part], field)
            values[name] = _clip(value, domain)
        return values


def resolve_cells(study: StudySpec, *, where: str) -> list[Cell]:
    """Every cell of a study, networks outermost. ConfigError lists all problems, each once.

    Every cell is checked at the default and at both ends of each range, so a study that validates cannot fail
    later on a value that its own search drew.
    """
    cells: list[Cell] = []
    problems: list[str] = []
    for n, network in enumerate(study.networks):
        for m, loss in enumerate(study.losses):
            try:
                cell = _resolve(study, network, loss, keys=(f"networks[{n}]", f"losses[{m}]"), where=where)
                _check(study, cell, where=where)
            except ConfigError as error:
                problems += error.problems
            else:
                cells.append(cell)
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return cells


def build_trial(study: StudySpec, cell: Cell, configuration: Configuration, *, trial: str, seed: int) -> TrialSpec:
    """The trial that runs one configuration of a cell with one seed."""
    parts = {"network": dict(cell.network), "loss": dict(cell.loss), "training": dict(cell.training)}
    for name, value in configuration.items():
        part, field = name.split(".", 1)
        parts[part] = with_setting(parts[part], field, value) if part == "loss" else parts[part] | {field: value}
    data = {key: value for key, value in study.data.to_plain().items() if key in DataSpec.model_fields}
    return TrialSpec.model_validate(
        {
            "study": study.study, "trial": trial, "cell": cell.name, "data": data, "seed": seed,
            "evaluation": study.evaluation.to_plain(), **parts,
        }
    )


def candidates(cell: Cell) -> list[Configuration]:
    """The defaults of a cell and both ends of each range, one at a time: what fits them all fits the whole search."""
    found: list[Configuration] = [{}]
    for name, domain in cell.domains.items():
        found += [{name: value} for value in (domain.choices if isinstance(domain, Choices) else _ends(domain))]
    return found


def _resolve(
    study: StudySpec, network: NetworkEntry, loss: LossEntry, *, keys: tuple[str, str], where: str
) -> Cell:
    network_name, loss_name = network.cell_name, loss.cell_name
    fixed_network = network.fixed | loss.network
    plain_loss, training = _plain_loss(loss), study.training.to_plain() | network.training | loss.training
    held = set(network.training) | set(loss.training)
    for override in study.overrides:
        if (override.network, override.loss) == (network_name, loss_name):
            plain_loss = _overridden(plain_loss, override, where)
            training |= override.training
            held |= set(override.training)
    domains = _entry_domains("network", NETWORKS[network.name], network, fixed_network, f"{where}: {keys[0]}")
    domains |= _loss_domains(loss, plain_loss, training, f"{where}: {keys[1]}")
    wanted = {name: domain for name, domain in study.search.training.items() if name not in held}
    domains |= _domains("training", TrainingSpec, wanted, f"{where}: search.training")
    return Cell(
        name=f"{network_name}.{loss_name}", network_name=network_name, loss_name=loss_name,
        network={"name": network.name} | fixed_network, loss=plain_loss, training=training, domains=domains,
    )


def _plain_loss(entry: LossEntry) -> dict[str, Any]:
    if entry.name is not None:
        return {"name": entry.name} | entry.fixed
    parts = {
        part.part_name: {"weight": part.weight, "loss": {"name": part.name} | part.fixed} for part in entry.loss
    }
    return {"name": SUM, "parts": parts}


def _overridden(plain_loss: dict[str, Any], override: Override, where: str) -> dict[str, Any]:
    try:
        return with_settings(plain_loss, override.fixed)
    except ValueError as error:
        raise ConfigError(f"{where}: overrides {override.network}.{override.loss}.fixed: {error}") from error


def _loss_domains(
    entry: LossEntry, plain_loss: Mapping[str, Any], training: Mapping[str, Any], where: str
) -> dict[str, Domain]:
    """Domains of a loss, or of every part of a sum. A setting that phases change counts at all its values."""
    listed = training.get("phases")  # what is no list or mapping here is refused with its key later on
    phases = [
        changes for phase in (listed if isinstance(listed, list) else []) if isinstance(phase, Mapping)
        and isinstance(changes := phase.get("loss", {}), Mapping)
    ]
    if entry.name is not None:
        return _entry_domains("loss", LOSSES[entry.name], entry, _without_name(plain_loss), where, phases)
    domains: dict[str, Domain] = {}
    for number, part in enumerate(entry.loss):
        plain, label = plain_loss["parts"][part.part_name], part.part_name
        changes = [part for phase in phases if isinstance(part := phase.get(label, {}), Mapping)]
        at = f"{where}.loss[{number}]"
        search = part.search
        if isinstance(search, dict) and "weight" in search:
            domains |= _domains(f"loss.{label}", WeightedLoss, {"weight": search["weight"]}, f"{at}.search")
            part = part.model_copy(update={"search": {name: search[name] for name in search if name != "weight"}})
        domains |= _entry_domains(
            f"loss.{label}", LOSSES[part.name], part, _without_name(plain["loss"]), at, changes
        )
    return domains


def _without_name(plain: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in plain.items() if name != "name"}


def _entry_domains(
    part: str, spec: type[Spec], entry: Settings, fixed: Mapping[str, Any], where: str,
    phases: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Domain]:
    if entry.search == "none":
        return {}
    if entry.search == "default":
        return {
            f"{part}.{name}": domain for name, domain in tunables(spec)
            if name not in fixed and _has_effect(spec, name, fixed, phases)
            and not _always_overridden(spec, name, fixed, phases)
        }
    for name in entry.search:
        if name in fixed:
            raise ConfigError(f"{where}.search.{name}: is also in `fixed`; keep one of them")
        if name in spec.model_fields and _always_overridden(spec, name, fixed, phases):
            raise ConfigError(f"{where}.search.{name}: every phase of the training sets it; leave it out here or there")
    return _domains(part, spec, entry.search, f"{where}.search")


def _has_effect(
    spec: type[Spec], name: str, fixed: Mapping[str, Any], phases: Sequence[Mapping[str, Any]]
) -> bool:
    """A setting declared with `when` matters if any phase of the training has those values."""
    return bool(_phases_with_effect(spec, name, fixed, phases or [{}]))


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


def _domains(part: str, spec: type[Spec], wanted: Mapping[str, Any], where: str) -> dict[str, Domain]:
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
        elif isinstance(domain, Range) and _is_integer(spec, name):
            domain = domain.model_copy(update={"integer": True})
        domains[f"{part}.{name}"] = domain
    return domains


def _is_integer(spec: type[Spec], name: str) -> bool:
    annotation = spec.model_fields[name].annotation
    return annotation is int or int in getattr(annotation, "__args__", ())


def _check(study: StudySpec, cell: Cell, *, where: str) -> None:
    """Refuses a cell that some configuration of its own space would make invalid."""
    known = {
        "training": {*TrainingSpec.model_fields}, "network": {*NETWORKS[cell.network["name"]].model_fields},
        "loss": loss_settings_of(cell.loss),
    }
    unions = frozenset({("network", cell.network["name"]), *(("loss", name) for name in (SUM, *LOSSES))})
    for candidate in candidates(cell):
        try:
            build_trial(study, cell, candidate, trial="check", seed=study.seeds[0])
        except ValidationError as error:
            problems = describe_problems(error, where=f"{where}: cell {cell.name}", known=known, unions=unions)
            problems = [as_settings(line) for line in problems]
            suffix = "; this is an end of its search range" if candidate else ""
            raise ConfigError([line + suffix for line in problems]) from error


def _ends(domain: Range) -> list[int | float]:
    return [int(domain.low), int(domain.high)] if domain.integer else [domain.low, domain.high]


def _clip(value: Any, domain: Domain) -> Any:
    if isinstance(domain, Choices):
        return value if value in domain.choices else domain.choices[0]
    if value is None:
        value = domain.low
    clipped = min(max(value, domain.low), domain.high)
    return int(clipped) if domain.integer else float(clipped)
