"""Studies read back as they were recorded, and study files that repeat cells of a board."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from vsetune.board.rows import Row
from vsetune.board.seed_results import headline_of
from vsetune.config.component_specs import SUM
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import build_trial, resolve_cells
from vsetune.config.study.study_spec import BudgetSpec, SearchSpec, StudySpec
from vsetune.errors import UsageError
from vsetune.records.events import PLUGIN_TAG, StudyRecord
from vsetune.records.state import Attempt
from vsetune.records.studies import folder_of_study
from vsetune.study.kept_plugins import load_kept


def study_of(record: StudyRecord) -> StudySpec:
    """The study of a record. Its plugins are loaded from the copies in the study's folder.

    ConfigError for a study of another version, StorageError if its copies are gone.
    """
    plugins = {
        tag.removeprefix(PLUGIN_TAG): sha256 for tag, sha256 in record.tags.items() if tag.startswith(PLUGIN_TAG)
    }
    if plugins:
        load_kept(plugins, folder_of_study(record.name), where=f"study {record.name}")
    return spec_of(record)


def spec_of(record: StudyRecord) -> StudySpec:
    """The study of a record whose plugins are loaded, or do not matter. ConfigError for a study of another version."""
    config = {
        key: {name: each for name, each in value.items() if name not in _DROPPED[key]} if key in _DROPPED else value
        for key, value in record.config.items()
    }
    return parse_spec(config, StudySpec, where=f"study {record.name}")


_DROPPED: Mapping[str, Sequence[str]] = {"search": ("widen", "warm_start"), "scheduler": ("least_chance",)}
"""Settings that this version no longer has. A study that used one is read without it."""
_TRAINED = ("network", "loss", "training")
"""Parts of a trial that define the training; the place of its data and its logging may differ."""
_MISSING = "nothing"


def repeated_study(
    study: StudySpec, rows: Sequence[Row], attempts: Sequence[Attempt], *, name: str, epochs: float | None
) -> StudySpec:
    """The study that trains the configurations of these rows (of one network) again, with the seeds that they show.

    A row of several searches is their mean. Of it the configuration of the best search is trained, with the seeds of
    that search: the others had other configurations.
    name: of the new study. epochs: of every training, instead of the recorded ones. attempts: the recorded ones.
    UsageError if a trial of the new study would differ from the recorded one, and for rows without a usable trial.
    """
    latest = {attempt.start.trial: attempt for attempt in sorted(attempts, key=lambda each: each.start.number)}
    for row in rows:
        if not row.seeds:
            raise UsageError("VSE-S066", "{cell}: has no usable trial, so there is nothing to repeat", cell=row.cell)
    recorded = {row.cell: latest[headline_of(row.seeds_of(row.pick))[0].trial] for row in rows}
    held = {row.cell: dict(row.configuration) for row in rows}
    for cell, differing in _differing(_spec(study, rows, held, name, epochs), recorded, epochs).items():
        held[cell] |= {key: old for key, (old, _) in differing.items() if old is not _MISSING}
    spec = _spec(study, rows, held, name, epochs)
    for cell, differing in _differing(spec, recorded, epochs).items():
        for key, (old, new) in differing.items():
            raise UsageError(
                "VSE-S067", "{cell}: {setting} was {got} in {trial} and would be {new}; recorded by another version of "
                "vsetune, repeat it with that one", cell=cell, setting=key, got=old, trial=recorded[cell].start.trial,
                new=new,
            )
    return spec


def _differing(
    spec: StudySpec, recorded: Mapping[str, Attempt], epochs: float | None
) -> dict[str, dict[str, tuple[Any, Any]]]:
    """By cell, the settings whose values differ between the recorded trial and the new study, as (recorded, new)."""
    found = {}
    for cell in resolve_cells(spec, where=f"study {spec.study}"):
        attempt = recorded[cell.name]
        trial = build_trial(spec, cell, cell.defaults(), trial="repeated", seed=attempt.start.seed).to_plain()
        old, new = _settings(attempt.start.resolved), _settings(trial)
        found[cell.name] = {
            key: (old.get(key, _MISSING), new.get(key, _MISSING)) for key in sorted(old.keys() | new.keys())
            if old.get(key, _MISSING) != new.get(key, _MISSING) and not (epochs and key == "training.epochs")
        }
    return found


def _settings(trial: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a training by dotted name, as in configurations: `loss.margin`, in a sum `loss.lmh.margin`."""
    flat = {f"{part}.{key}": value for part in _TRAINED for key, value in trial.get(part, {}).items()}
    if flat.get("loss.name") == SUM:
        for part, term in flat.pop("loss.parts").items():
            flat[f"loss.{part}.weight"] = term["weight"]
            flat |= {f"loss.{part}.{key}": value for key, value in term["loss"].items()}
    return flat


def _spec(
    study: StudySpec, rows: Sequence[Row], held: Mapping[str, Mapping[str, Any]], name: str, epochs: float | None
) -> StudySpec:
    plain = copy.deepcopy(study.to_plain())
    network = rows[0].cell.partition(".")[0]
    cells = {row.cell.partition(".")[2]: row.cell for row in rows}
    networks = [entry for entry in plain["networks"] if _name_of(entry) == network]
    losses = [entry for entry in plain["losses"] if _name_of(entry) in cells]
    known = {each["loss"]: each for each in plain["overrides"] if each["network"] == network}
    overrides = [
        known.get(loss, {"network": network, "loss": loss, "fixed": {}, "training": {}})
        for loss in map(_name_of, losses)
    ]
    for entry in networks:
        entry["search"] = "none"
    if epochs is not None:
        for part in (*networks, *losses, *overrides):
            if part["training"].get("epochs") != 0:  # 0: its network is not trained
                part["training"].pop("epochs", None)
        plain["training"]["epochs"] = epochs
    for entry, override in zip(losses, overrides, strict=True):
        for part in (entry, *entry["loss"]):
            part["search"] = "default" if part is entry and entry["loss"] else "none"
        _hold(entry, override, held[cells[override["loss"]]])
    resources = {key: value for key, value in plain["resources"]["cells"].items() if key in (network, *cells.values())}
    changed = {
        "study": name, "networks": networks, "losses": losses, "overrides": overrides,
        "baseline": plain["baseline"] if plain["baseline"] in cells else next(iter(cells)),
        "seeds": _seeds_of(rows),
        "search": SearchSpec(configurations=1).to_plain(), "scheduler": {"kind": "none"},
        "budget": BudgetSpec().to_plain(), "resources": plain["resources"] | {"cells": resources},
    }
    whole = {key: value for key, value in plain.items() if key != "cells"} | changed
    return parse_spec(whole, StudySpec, where=f"repetition of study {study.study}")


def _seeds_of(rows: Sequence[Row]) -> list[int]:
    """The seeds behind the rows; those of the best search of each, where a row is of several searches."""
    shown = [row.headline for row in rows]
    if any(row.has_searches for row in rows):
        shown = [tuple(headline_of(row.seeds_of(row.pick))) for row in rows]
    return sorted({seed.seed for seeds in shown for seed in seeds})


def _hold(entry: dict[str, Any], override: dict[str, Any], settings: Mapping[str, Any]) -> None:
    """Fixes settings: those of a network in the entry of the loss, those of the loss and training in the override."""
    for name, value in settings.items():
        kind, _, setting = name.partition(".")
        part, _, field = setting.rpartition(".")
        if kind == "network":
            entry["network"][setting] = value
        elif kind == "training":
            override["training"][setting] = value
        elif part:
            override["fixed"].setdefault(part, {})[field] = value
        else:
            override["fixed"][setting] = value


def _name_of(entry: Mapping[str, Any]) -> str:
    """The name of an entry in cells, the same as `cell_name`."""
    parts = [str(part["label"] or part["name"]) for part in entry.get("loss") or ()]
    return str(entry["label"] or entry["name"] or "_".join(parts))
