"""Contradictions between the parts of a study file: all of them at once, even if the file has other problems."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vsetune.config.component_specs import LOSSES, NETWORKS
from vsetune.config.spec.base import did_you_mean

if TYPE_CHECKING:
    from vsetune.config.study.study_spec import StudySpec

Place = tuple[int | str, ...]

_KINDS: tuple[tuple[str, Mapping[str, Any], str], ...] = (("networks", NETWORKS, "vsepp"), ("losses", LOSSES, "lmh"))
"""Key, the components it can name, and the stand-in for a wrong entry."""


def inconsistencies(study: StudySpec) -> Iterator[str]:
    """The contradictions of a study, one line each."""
    networks = [entry.cell_name for entry in study.networks]
    losses = [entry.cell_name for entry in study.losses]
    for kind, names in (("networks", networks), ("losses", losses)):
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            yield f"{kind}: {', '.join(repeated)} is listed twice; give one of them a `label`"
    existing = [f"{network}.{loss}" for network in dict.fromkeys(networks) for loss in dict.fromkeys(losses)]
    there_are = f"the networks {', '.join(networks)} and the losses {', '.join(losses)}"
    if study.baseline not in losses:
        told = study.baseline if "baseline" in study.model_fields_set else f"{study.baseline}, the default,"
        yield (
            f"baseline: {told} is not among the losses {', '.join(losses)}; {did_you_mean(study.baseline, losses)}need "
            f"one of them, such as baseline: {losses[0]}"
        )
    elif study.search.objective == "epochs_to_target" and study.search.target == "baseline":
        yield from _without_baseline(study.cells or [], study.baseline)
    for override in study.overrides:
        name = f"{override.network}.{override.loss}"
        if name not in existing:
            yield f"overrides: no cell {name} in this study; {did_you_mean(name, existing)}need one of {there_are}"
    yield from _unknown_cells(study.cells or [], existing, there_are)
    unknown = study.resources.unknown_cells(networks, losses)
    if unknown:
        yield f"resources.cells: got {', '.join(unknown)}, need a network ({', '.join(networks)}) or network.loss"
    if len(set(study.seeds)) != len(study.seeds):
        yield f"seeds: got {study.seeds}, need different numbers"
    if study.study in study.search.warm_start:
        yield f"search.warm_start: got {study.study}, which is this study; name others"
    if study.scheduler.kind != "none" and study.scheduler.grace_epochs > study.training.epochs:
        yield (
            f"scheduler.grace_epochs: got {study.scheduler.grace_epochs:g}, need at most training.epochs "
            f"({study.training.epochs:g})"
        )


def with_stand_ins(content: Mapping[str, Any], wrong: Collection[Place]) -> dict[str, Any]:
    """A study file whose wrong values are left out or replaced by values that contradict nothing."""
    keys = {str(place[0]) for place in wrong if place}
    kept = {key: value for key, value in content.items() if key not in keys}
    if keys & {"training", "scheduler"}:
        kept.pop("training", None), kept.pop("scheduler", None)
    kept.setdefault("study", "stand-in")
    kept.setdefault("data", {"path": "stand-in"})
    unknown: set[str] = set()
    for kind, known, stand_in in _KINDS:
        if kind not in keys:
            continue
        given = content.get(kind)
        entries: Sequence[Any] = given if isinstance(given, list) and given else [None]
        broken = {place[1] for place in wrong if place[0] == kind and len(place) > 1} or set(range(len(entries)))
        names = {number: _cell_name(entries[number], known) for number in broken if isinstance(number, int)}
        if None in names.values():
            unknown.add(kind)
        kept[kind] = [
            {"name": stand_in, "label": names[number] or f"stand-in-{number}"} if number in names else entry
            for number, entry in enumerate(entries)
        ]
    if unknown:
        for key in ("overrides", "cells", "resources"):
            kept.pop(key, None)
    if "losses" in unknown or "baseline" in keys:
        kept["losses"] = [*kept["losses"], {"name": "lmh", "label": "stand-in-baseline"}]
        kept["baseline"] = "stand-in-baseline"
    return kept


def _cell_name(entry: Any, known: Mapping[str, Any]) -> str | None:
    """The name that cells use for an entry with a problem; None if the name itself may be wrong."""
    if isinstance(entry, str):
        return entry if entry in known else None
    if not isinstance(entry, Mapping):
        return None
    name = entry.get("label") or entry.get("name")
    if isinstance(entry.get("label"), str) or (isinstance(name, str) and name in known):
        return str(name)
    return None


def _without_baseline(cells: list[str], baseline: str) -> Iterator[str]:
    """A line for each network of `cells` without the baseline, whose best would be the target."""
    for network in dict.fromkeys(name.split(".")[0] for name in cells):
        if f"{network}.{baseline}" not in cells:
            yield (
                f"search.target: is the best of {network}.{baseline}, which is not among `cells`; list it, or give an "
                "M-Recall in per cent"
            )


def _unknown_cells(cells: list[str], existing: list[str], there_are: str) -> Iterator[str]:
    """Lines for entries of `cells` that are not a network with a loss of this study, and for repeated entries."""
    unknown = [name for name in cells if name not in existing]
    if unknown:
        hint = did_you_mean(unknown[0], existing).strip() if len(unknown) == 1 else ""
        yield f"cells: got {', '.join(unknown)}, need network.loss of {there_are}{hint and f'; {hint}'}"
    repeated = sorted({name for name in cells if cells.count(name) > 1})
    if repeated:
        yield f"cells: {', '.join(repeated)} is listed twice; name each once"
