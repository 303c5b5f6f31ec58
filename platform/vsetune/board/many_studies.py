"""Several studies side by side: one board per data set."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from vsetune.board.building import board_of, group_rows
from vsetune.board.rows import Boards, Row
from vsetune.board.selection import dataset_of, winner_of
from vsetune.errors import IncompatibleCurves
from vsetune.metrics.curves import check_same_protocol
from vsetune.metrics.efficiency import TARGET_SHARE
from vsetune.records.state import Attempt, Trial, trials_of


@dataclass(frozen=True)
class StudyAttempts:
    """baseline: the loss that the study compares with; empty if the study has none."""

    name: str
    baseline: str
    attempts: Sequence[Attempt]


@dataclass
class _Unit:
    """The rows of one study with one network on one data set, under one protocol: trials by loss."""

    study: str
    cells: dict[str, list[Trial]] = field(default_factory=dict)

    def shown(self, loss: str) -> Attempt:
        """An attempt whose conditions another study has to share: of this loss if it has a result, else of any loss."""
        of = {name: winner for name, trials in self.cells.items() if (winner := winner_of(trials)) is not None}
        return of.get(loss) or next(iter(of.values()), None) or next(iter(self.cells.values()))[-1][-1]

    def has_result(self, loss: str) -> bool:
        return loss in self.cells and winner_of(self.cells[loss]) is not None


@dataclass
class _Group:
    """units: comparable units, the one with the baseline first. apart: other units with the reason."""

    units: list[_Unit]
    apart: list[tuple[_Unit, str]] = field(default_factory=list)


def build_many(
    studies: Sequence[StudyAttempts], *, baseline: str | None = None, target_share: float = TARGET_SHARE
) -> Boards:
    """Boards of several studies. baseline: the loss to compare with; None: on each data set the baseline of most of its
    studies, ties go to the study named first. If two studies have a loss of the same name, the later one is named
    STUDY/LOSS. target_share: as in `building.build`.
    """
    places: dict[str, dict[str, list[_Unit]]] = {}
    for study in studies:
        for dataset, network, unit in _units(study):
            places.setdefault(dataset, {}).setdefault(network, []).append(unit)
    named = {study.name: study.baseline for study in studies}
    notes = [f"{study.name}: has no attempts yet" for study in studies if not study.attempts]
    boards = []
    for dataset, networks in places.items():
        of_data = dict.fromkeys(unit.study for units in networks.values() for unit in units)
        most_named = Counter(named[study] for study in of_data if named[study]).most_common(1)
        reference = baseline or (most_named[0][0] if most_named else "")
        grouped = [
            [(group, _rows(dataset, group, reference, target_share)) for group in _groups(units, reference)]
            for units in networks.values()
        ]
        notes += [note for groups in grouped for group, rows in groups for note in _differences(dataset, rows, group)]
        for number, layer in enumerate(zip_longest(*([rows for _, rows in groups] for groups in grouped)), 1):
            rows = [row for of_network in layer for row in of_network or ()]
            study_names = " + ".join(dict.fromkeys(row.study for row in rows))
            boards.append(board_of(rows, study=study_names, baseline=reference, number=number))
    return Boards(tuple(boards), tuple(notes))


def _units(study: StudyAttempts) -> Iterator[tuple[str, str, _Unit]]:
    """(data set, network, unit) of the study; a cell belongs to the protocol of the attempt that it shows."""
    cells: dict[tuple[str, str, str], list[Trial]] = {}
    for trial in trials_of(study.attempts):
        start = trial[-1].start
        cells.setdefault((dataset_of(trial[-1]), start.network, start.loss), []).append(trial)
    units: dict[tuple[str, str, str], _Unit] = {}
    for (dataset, network, loss), trials in cells.items():
        shown = winner_of(trials) or trials[-1][-1]
        key = (dataset, network, json.dumps(shown.start.protocol, sort_keys=True, default=str))
        units.setdefault(key, _Unit(study.name)).cells[loss] = trials
    for (dataset, network, _), unit in units.items():
        yield dataset, network, unit


def _groups(units: Sequence[_Unit], baseline: str) -> list[_Group]:
    """Groups of comparable units. Units with a result of the baseline come first. Each unit joins the first group that
    it is comparable with. Otherwise the first unit and units with the baseline start a group; other units are set apart
    from the first group, with the reason."""
    groups: list[_Group] = []
    for unit in sorted(units, key=lambda unit: not unit.has_result(baseline)):
        reasons = [_difference(group.units[0], unit, baseline) for group in groups]
        if None in reasons:
            groups[reasons.index(None)].units.append(unit)
        elif not groups or unit.has_result(baseline):
            groups.append(_Group([unit]))
        else:
            groups[0].apart.append((unit, str(reasons[0])))
    return groups


def _difference(one: _Unit, other: _Unit, baseline: str) -> str | None:
    """Why cells of two studies are not comparable; None if they are."""
    shown = one.shown(baseline), other.shown(baseline)
    where = " and ".join(dict.fromkeys((one.study, other.study)))
    try:
        check_same_protocol(shown[0].start.protocol, shown[1].start.protocol)
    except IncompatibleCurves as error:
        return f"{where}: {error}"
    settings, others = map(_settings, shown)
    searched = {key for attempt in shown for key in attempt.start.configuration}
    differing = [
        f"{key} is {settings.get(key, 'absent')} in one and {others.get(key, 'absent')} in the other"
        for key in sorted(settings.keys() | others.keys())
        if key not in searched and settings.get(key, searched) != others.get(key, searched)
    ]
    if not differing:
        return None
    return f"{where}: {'; '.join(differing)}; need one network, trained as long, run both in one study"


def _settings(attempt: Attempt) -> dict[str, Any]:
    """Settings of the network and the training length, by dotted name."""
    network, training = (attempt.start.resolved.get(part, {}) for part in ("network", "training"))
    lengths = {"training.epochs": training["epochs"]} if "epochs" in training else {}
    return {f"network.{key}": value for key, value in network.items()} | lengths


def _rows(dataset: str, group: _Group, baseline: str, target_share: float) -> list[Row]:
    cells: dict[str, list[Trial]] = {}
    apart: dict[str, str] = {}
    for unit, reason in [*((unit, None) for unit in group.units), *group.apart]:
        for loss, trials in unit.cells.items():
            name = loss
            if loss in cells or (loss == baseline and unit is not group.units[0]):
                name = f"{unit.study}/{loss}"
            while name in cells:
                name += "'"  # one study under several protocols
            cells[name] = trials
            if reason is not None:
                apart[name] = reason
    return group_rows(dataset, cells, baseline, apart=apart, target_share=target_share)


def _differences(dataset: str, rows: Sequence[Row], group: _Group) -> list[str]:
    """Differences between studies that are compared: the budgets of their searches, and the code revisions."""
    if len({unit.study for unit in group.units}) < 2:
        return []
    compared = [row for row in rows if row.not_comparable is None]
    budgets = {row.loss: f"{row.search_budget.epochs:g}" if row.search_budget else "none" for row in compared}
    revisions: dict[str, str] = {}
    for unit in group.units:
        for attempt in (trial[-1] for trials in unit.cells.values() for trial in trials):
            revisions.setdefault(unit.study, attempt.start.environment.get("git_revision", "unknown"))
    place, notes = f"{rows[0].network} on {dataset}", []
    if len(set(budgets.values())) > 1:
        words = ", ".join(f"{loss} {epochs}" for loss, epochs in budgets.items())
        notes.append(f"{place}: the searches were given different epochs, so some were tuned more: {words}")
    if len(set(revisions.values())) > 1:
        words = ", ".join(f"{study} {revision[:12]}" for study, revision in revisions.items())
        notes.append(f"{place}: recorded with different code: {words}")
    return notes
