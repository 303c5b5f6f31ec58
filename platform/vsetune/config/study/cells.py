"""A study resolved into its cells (data set x network x loss) and a cell into trials."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from vsetune.config.component_specs import LOSSES, NETWORKS, SUM
from vsetune.config.sources.trial_inputs import DataSpec
from vsetune.config.spec.base import Choices, Domain, Range, Spec
from vsetune.config.spec.loading import describe_problems, places_of, problems_in
from vsetune.config.study.compatibility import PROTOCOL_SETTINGS, protocol_difference
from vsetune.config.study.domains import (
    Conditions,
    SearchedPart,
    Value,
    clipped,
    domains_of,
    loss_parts,
    phase_changes,
    values_to_check,
)
from vsetune.config.study.loss_settings import (
    as_settings,
    plugins_in,
    specs_of_loss,
    terms_in,
    with_settings,
)
from vsetune.config.study.study_entries import LossEntry, NetworkEntry, Override
from vsetune.config.study.study_spec import StudySpec
from vsetune.config.study.training import TrainingSpec, TrialSpec
from vsetune.errors import ConfigError, Problem
from vsetune.home.hashes import fingerprint_of

Configuration = Mapping[str, Value]
"""Values sampled from a cell's domains by dotted name, such as `loss.margin` or `training.learning_rate`."""


@dataclass(frozen=True)
class Cell:
    """One network with one loss: the fixed settings, and the domain of every searched setting.

    network, loss, training: plain data with `name`; a searched setting has its default there, the paper's, clipped to
    its range, and a value sampled from its domain replaces it.
    domains: dotted name to Range or Choices, in a stable order. conditions: of the settings among them that matter only
    at certain values of others; a configuration leaves out a setting without effect.
    seeds: the first searches, the others confirm the winner. repeat: number of the search of this network and loss,
    from 1; later ones are cells of their own, named `network.loss.r2`, ...
    """

    name: str
    network_name: str
    loss_name: str
    network: Mapping[str, Any]
    loss: Mapping[str, Any]
    training: Mapping[str, Any]
    domains: Mapping[str, Domain]
    conditions: Conditions = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    repeat: int = 1

    @property
    def is_trained(self) -> bool:
        """False with `epochs: 0`: the network is validated once as it starts, so nothing is searched or confirmed."""
        return bool(self.training["epochs"])

    def defaults(self) -> dict[str, Value]:
        """The configuration before the search: the paper's values, clipped to their ranges."""
        return self.applying(self.all_defaults())

    def all_defaults(self) -> dict[str, Value]:
        """The default configuration including settings that have no effect in it."""
        if not self.domains:
            return {}
        parts = {
            "network": _filled(NETWORKS[self.network["name"]], self.network),
            "training": _filled(TrainingSpec, self.training),
        }
        for label, plain in terms_in(self.loss).items():
            filled = _filled(LOSSES[plain["name"]], plain)
            if label:
                parts[f"loss.{label}"] = filled | {"weight": self.loss["parts"][label]["weight"]}
            else:
                parts["loss"] = filled
        places = {name: name.rpartition(".") for name in self.domains}
        return {name: clipped(parts[path][key], self.domains[name]) for name, (path, _, key) in places.items()}

    def applying(self, configuration: Configuration) -> dict[str, Value]:
        """The configuration without the settings that have no effect in it."""
        kept = dict(configuration)
        while left := [name for name in kept if name in self.conditions and not any(
            all(kept.get(other) == value for other, value in way.items()) for way in self.conditions[name]
        )]:
            for name in left:
                del kept[name]
        return kept


def resolve_cells(study: StudySpec, *, where: str) -> list[Cell]:
    """Every cell of a study, or those under `cells`, networks outermost. ConfigError lists all problems, each once.

    Every cell is checked at its defaults, at both ends of each range and at every pair of those, so that a space whose
    settings contradict each other is reported here; an invalid sample inside the ranges is left to `refusal`. Losses
    whose curves cannot be compared with the baseline's are refused too.
    """
    cells: list[Cell] = []
    problems: list[str] = []
    for n, network in enumerate(study.networks):
        for m, loss in enumerate(study.losses):
            if study.cells is not None and f"{network.cell_name}.{loss.cell_name}" not in study.cells:
                continue
            try:
                cell = _resolve(study, network, loss, keys=(f"networks[{n}]", f"losses[{m}]"), where=where)
                _check(study, cell, where=where)
            except ConfigError as error:
                problems += error.problems
            else:
                cells.append(cell)
    problems += [*_incomparable(study, cells, where), *_twins(study, cells, where)]
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return cells


def cell_of(study: StudySpec, name: str) -> Cell | None:
    """One cell of a study that has passed its checks; None if there is no cell of this name."""
    found = [
        _resolve(study, network, loss, keys=("networks", "losses"), where=f"study {study.study}")
        for network in study.networks for loss in study.losses
        if name.split(".")[:2] == [network.cell_name, loss.cell_name]
    ]
    return next((cell for cell in repeated_cells(study, found) if cell.name == name), None)


def repeated_cells(study: StudySpec, cells: Sequence[Cell]) -> list[Cell]:
    """The cells with `search.repeats` of each, every first search before every second one. cells: from `resolve_cells`.

    The first repeat has the study's seeds, each further one as many of the smallest other ones, the same for all
    losses. A cell without searched settings has nothing to repeat, so it is one cell with the seeds of all repeats, or
    with the first seed if it is not trained.
    """
    seeds, length, found = _seeds(study), len(study.seeds), []
    for number in range(study.search.repeats):
        own = tuple(seeds[number * length : (number + 1) * length])
        for cell in cells:
            if cell.domains:
                name = repeat_name(cell.name, number + 1)
                found.append(replace(cell, name=name, repeat=number + 1, seeds=own))
            elif not number:
                found.append(replace(cell, seeds=tuple(seeds) if cell.is_trained else cell.seeds[:1]))
    return found


def unused_seeds(study: StudySpec, cell: Cell) -> Iterator[int]:
    """Seeds for more confirmations, from the smallest that no cell has. No two repeats of a cell get the same one."""
    known = _seeds(study)
    free = (seed for seed in itertools.count() if seed not in known)
    return itertools.islice(free, cell.repeat - 1, None, study.search.repeats) if cell.domains else free


def _seeds(study: StudySpec) -> list[int]:
    """The seeds of all repeats."""
    others = (seed for seed in itertools.count() if seed not in study.seeds)
    return [*study.seeds, *itertools.islice(others, (study.search.repeats - 1) * len(study.seeds))]


def repeat_name(cell: str, repeat: int) -> str:
    """The name of the cell of a repeat, from 1. cell: `network.loss`."""
    return cell if repeat == 1 else f"{cell}.r{repeat}"


def build_trial(study: StudySpec, cell: Cell, configuration: Configuration, *, trial: str, seed: int) -> TrialSpec:
    """The trial that runs one configuration of a cell with one seed."""
    parts = _parts(cell, configuration)
    data = {key: value for key, value in study.data.to_plain().items() if key in DataSpec.model_fields}
    return TrialSpec.model_validate(
        {
            "study": study.study, "trial": trial, "cell": cell.name, "data": data, "seed": seed,
            "evaluation": study.evaluation.to_plain(), **parts, "plugins": plugins_in(parts["network"], parts["loss"]),
        }
    )


def refusal(study: StudySpec, cell: Cell, configuration: Configuration) -> Problem | None:
    """Why no trial can be made of this configuration of a cell, in one line; None if one can."""
    found = _refusals(study, cell, configuration, where=f"cell {cell.name}")
    return found[0].worded("; ".join(found)) if found else None


def candidates(cell: Cell) -> list[Configuration]:
    """The defaults of a cell and both ends of each range, one at a time, for checks before the search."""
    return [{}, *({name: value} for name, domain in cell.domains.items() for value in values_to_check(domain))]


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
    searched = [
        SearchedPart(
            "network", NETWORKS[network.name], network.search, fixed_network, phase_changes(training, "network"),
            f"{where}: {keys[0]}",
        ),
        *loss_parts(loss, plain_loss, training, f"{where}: {keys[1]}"),
    ]
    domains = {name: domain for part in searched for name, domain in part.domains().items()}
    wanted = {name: domain for name, domain in study.search.training.items() if name not in held}
    domains |= domains_of("training", TrainingSpec, wanted, f"{where}: search.training")
    if training["epochs"] == 0:
        domains = {}
    conditions = {name: ways for part in searched for name, ways in part.conditions(domains).items()}
    cell = Cell(
        name=f"{network_name}.{loss_name}", network_name=network_name, loss_name=loss_name,
        network={"name": network.name} | fixed_network, loss=plain_loss, training=training, domains=domains,
        conditions=conditions, seeds=tuple(study.seeds),
    )
    parts = _parts(cell, cell.all_defaults())
    return replace(cell, network=parts["network"], loss=parts["loss"], training=parts["training"])


def _parts(cell: Cell, configuration: Configuration) -> dict[str, dict[str, Any]]:
    """network, loss and training of a cell as plain data, with the values of a configuration."""
    parts = {"network": dict(cell.network), "loss": dict(cell.loss), "training": dict(cell.training)}
    for name, value in configuration.items():
        part, *label, setting = name.split(".")
        changes = {label[0]: {setting: value}} if label else {setting: value}
        parts[part] = with_settings(parts[part], changes) if part == "loss" else parts[part] | changes
    return parts


def _filled(spec: type[Spec], plain: Mapping[str, Any]) -> dict[str, Any]:
    """Plain data with the defaults of the spec; with those of its fields alone if its values contradict each other,
    which `_check` reports."""
    defaults = {name: field.get_default(call_default_factory=True) for name, field in spec.model_fields.items()}
    try:
        return defaults | spec.model_validate(plain).to_plain()
    except ValidationError:
        return defaults | dict(plain)


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
        place = f"{where}: overrides {override.network}.{override.loss}.fixed"
        raise ConfigError([problem.at(place) for problem in problems_in(error)]) from error


def _check(study: StudySpec, cell: Cell, *, where: str) -> None:
    """Refuses a cell that is invalid at its defaults, at an end of a range, or where two settings contradict; and
    ranges of real numbers for a grid."""
    at = f"{where}: cell {cell.name}"
    real = [name for name, each in cell.domains.items() if isinstance(each, Range) and not each.integer]
    if study.search.sampler == "grid" and real:
        raise ConfigError(Problem.of(
            "VSE-C540", "search.sampler: grid needs values to combine, {settings} is a range of real numbers; write "
            "`{{choices: [...]}}` for it, or use sobol", settings=" and ".join(real),
        ).at(at))
    for candidate in candidates(cell):
        suffix = "; this is an end of its search range" if candidate else ""
        if any(isinstance(cell.domains[name], Choices) for name in candidate):
            suffix = "; this is one of its choices"
        if refusals := _refusals(study, cell, candidate, where=at):
            raise ConfigError([line.worded(line + suffix) for line in refusals])
    problems: dict[frozenset[str], str] = {}
    for combination in itertools.islice(_combinations(cell), _MOST_COMBINATIONS):
        if any(known <= combination.keys() for known in problems):
            continue  # these settings are reported already
        if refusals := _refusals(study, cell, combination, where=""):
            problems[frozenset(combination)] = Problem.of(
                "VSE-C050", "{values} contradict each other, and the search may sample them together ({reason}); "
                "narrow the range of one", reason="; ".join(refusals),
                values=" and ".join(f"{name} {_shown(value)}" for name, value in combination.items()),
            ).at(at)
    if problems:
        raise ConfigError(list(problems.values()))


_FEW, _MOST_COMBINATIONS = 128, 20_000


def _combinations(cell: Cell) -> Iterator[Configuration]:
    """Every pair of ends or choices of two settings, the others at their defaults; all combinations too if they are
    few."""
    values = {name: values_to_check(domain) for name, domain in cell.domains.items()}
    for first, second in itertools.combinations(values, 2):
        yield from ({first: one, second: two} for one, two in itertools.product(values[first], values[second]))
    if len(values) > 2 and math.prod(map(len, values.values())) <= _FEW:
        yield from (dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values()))


def _refusals(study: StudySpec, cell: Cell, configuration: Configuration, *, where: str) -> list[Problem]:
    """Every problem of the trial of a configuration."""
    try:
        build_trial(study, cell, configuration, trial="check", seed=study.seeds[0])
    except ValidationError as error:
        places = places_of([
            (("training",), TrainingSpec), (("network",), NETWORKS[cell.network["name"]]),
            *specs_of_loss(cell.loss, ("loss",)),
        ])
        return [each.worded(as_settings(each)) for each in describe_problems(error, where=where, places=places)]
    return []


def _incomparable(study: StudySpec, cells: Sequence[Cell], where: str) -> list[str]:
    """Problems of losses whose curves cannot be compared with the baseline's on the same network, found before any run.
    """
    problems: list[str] = []
    baselines = {cell.network_name: cell for cell in cells if cell.loss_name == study.baseline}
    for cell in cells:
        baseline = baselines.get(cell.network_name, cell)
        if cell.is_trained and not baseline.is_trained:
            problem = Problem.of(
                "VSE-C131", "cell {baseline} is trained for 0 epochs, so nothing can be compared with it; name a loss "
                "that is trained", baseline=baseline.name,
            )
            problems.append(problem.at(f"{where}: baseline"))
        plain, other = (TrainingSpec.model_validate(each.training).to_plain() for each in (cell, baseline))
        key = protocol_difference(plain, other)
        if key is not None:
            problem = Problem.of(
                "VSE-C051", "{key}: loss {loss} has {got}, the baseline {baseline} has {need} ({other}), so their "
                "curves would not compare; give both the same", key=_origin(study, cell, key), loss=cell.loss_name,
                got=_shown(plain[key]), baseline=baseline.loss_name, need=_shown(other[key]),
                other=_origin(study, baseline, key),
            )
            problems.append(problem.at(where))
    if len(study.losses) > 1:
        problems += [
            Problem.of(
                "VSE-C017", "losses with different {setting} do not compare; keep it at one value", setting=name
            ).at(f"{where}: search.training.{name}")
            for name in PROTOCOL_SETTINGS if name in study.search.training
        ]
    return problems


def _twins(study: StudySpec, cells: Sequence[Cell], where: str) -> Iterator[str]:
    """Problems of cells that differ in their names alone."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        trial = build_trial(study, cell, {}, trial="check", seed=study.seeds[0]).to_plain()
        domains = {name: domain.to_plain() for name, domain in cell.domains.items()}
        key = fingerprint_of({"domains": domains, **{part: trial[part] for part in ("network", "loss", "training")}})
        found.setdefault(key, []).append(cell.name)
    for names in found.values():
        if len(names) > 1:
            yield Problem.of(
                "VSE-C521", "{names} are one setting under several names; keep one, or set search.repeats",
                names=" and ".join(names),
            ).at(f"{where}: cells")


def _origin(study: StudySpec, cell: Cell, key: str) -> str:
    """The place in the study file of a setting of a cell's training: the one that takes precedence."""
    entries: list[tuple[str, int, Override | LossEntry | NetworkEntry]] = [
        *(("overrides", n, e) for n, e in enumerate(study.overrides) if f"{e.network}.{e.loss}" == cell.name),
        *(("losses", n, e) for n, e in enumerate(study.losses) if e.cell_name == cell.loss_name),
        *(("networks", n, e) for n, e in enumerate(study.networks) if e.cell_name == cell.network_name),
    ]
    found = (f"{kind}[{number}].training.{key}" for kind, number, entry in entries if key in entry.training)
    return next(found, f"training.{key}")


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else "null" if value is None else str(value)
