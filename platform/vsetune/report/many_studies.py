"""Several studies on one board per data set, and those boards for other programs."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from vsetune.errors import IncompatibleCurves
from vsetune.metrics.curves import check_same_protocol
from vsetune.metrics.performance_profiles import HIT_SHARE
from vsetune.records.events import AttemptRecord
from vsetune.report import wording
from vsetune.report.building import board_of, group_rows
from vsetune.report.column import Column
from vsetune.report.columns import COLUMNS
from vsetune.report.export import (
    TableText,
    TableTexts,
    csv_head,
    csv_text,
    curves_to_csv,
    latex_text,
    markdown_text,
    markdown_words,
    tex,
    to_json,
    to_plain,
)
from vsetune.report.rows import UNITS, Leaderboard, Row, TimeProfile, Unit
from vsetune.report.selection import Trial, dataset_of, trials_of, winner_of
from vsetune.report.terminal import WordTable, profile_table
from vsetune.report.time_profiles import time_profile


@dataclass(frozen=True)
class StudyAttempts:
    """baseline: the loss that the study compares with; empty if the study has none."""

    name: str
    baseline: str
    attempts: Sequence[AttemptRecord]


@dataclass(frozen=True)
class ManyBoards:
    """One board for each data set, and another for studies with their own baseline under other conditions. notes: the
    differences between studies shown side by side, and the studies on no board. profile: of the losses over the first
    board of every data set, by epochs, if these boards share a baseline; seconds_profile by seconds of training."""

    boards: tuple[Leaderboard, ...]
    notes: tuple[str, ...]
    profile: TimeProfile | None = None
    seconds_profile: TimeProfile | None = None

    @property
    def studies(self) -> list[str]:
        """Names of the studies with a row on any board."""
        return list(dict.fromkeys(row.study for board in self.boards for row in board.rows))


@dataclass
class _Unit:
    """The cells of one study with one network on one data set, under one protocol: trials by loss."""

    study: str
    cells: dict[str, list[Trial]] = field(default_factory=dict)

    def shown(self, loss: str) -> AttemptRecord:
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
    studies: Sequence[StudyAttempts], *, baseline: str | None = None, hit_share: float = HIT_SHARE
) -> ManyBoards:
    """Boards of several studies. baseline: the loss to compare with; None: on each data set the baseline of most of its
    studies, ties go to the study named first. If two studies have a loss of the same name, the later one is named
    STUDY/LOSS. hit_share: of profiles, as in `TimeProfile`.
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
        told = Counter(named[study] for study in of_data if named[study]).most_common(1)
        yardstick = baseline or (told[0][0] if told else "")
        layers: list[list[Row]] = []
        for units in networks.values():
            for layer, group in enumerate(_groups(units, yardstick)):
                rows = _rows(dataset, group, yardstick)
                notes += _differences(dataset, rows, group)
                if layer == len(layers):
                    layers.append([])
                layers[layer] += rows
        boards += [
            board_of(
                rows, study=" + ".join(dict.fromkeys(row.study for row in rows)), baseline=yardstick, number=layer + 1,
                hit_share=hit_share,
            )
            for layer, rows in enumerate(layers)
        ]
    return ManyBoards(tuple(boards), tuple(notes), *(_profile(boards, unit, hit_share) for unit in UNITS))


def _profile(boards: Sequence[Leaderboard], unit: Unit, hit_share: float) -> TimeProfile | None:
    first: dict[str, Leaderboard] = {}
    for board in boards:
        first.setdefault(board.rows[0].dataset, board)
    baselines = {board.baseline for board in first.values()}
    if len(first) < 2 or len(baselines) > 1:
        return None
    rows = [row for board in first.values() for row in board.rows]
    return time_profile(rows, baselines.pop(), unit=unit, hit_share=hit_share)


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


def _settings(attempt: AttemptRecord) -> dict[str, Any]:
    """Settings of the network and the training length, by dotted name."""
    network, training = (attempt.start.resolved.get(part, {}) for part in ("network", "training"))
    lengths = {"training.epochs": training["epochs"]} if "epochs" in training else {}
    return {f"network.{key}": value for key, value in network.items()} | lengths


def _rows(dataset: str, group: _Group, baseline: str) -> list[Row]:
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
    return group_rows(dataset, cells, baseline, apart=apart)


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
        told = ", ".join(f"{loss} {epochs}" for loss, epochs in budgets.items())
        notes.append(f"{place}: the searches were given different epochs, so some were tuned more: {told}")
    if len(set(revisions.values())) > 1:
        told = ", ".join(f"{study} {revision[:12]}" for study, revision in revisions.items())
        notes.append(f"{place}: recorded with different code: {told}")
    return notes


Shown = Leaderboard | ManyBoards


def csv_texts(shown: Shown, columns: Sequence[Column] = COLUMNS) -> TableTexts:
    """One table; for several boards the first field is the board of the row."""
    if isinstance(shown, Leaderboard):
        return _alone(csv_text(shown, columns))
    boards = tuple(csv_text(board, columns, board_id=wording.board_id(board)) for board in shown.boards)
    return TableTexts(csv_head(columns, has_board=True), "", boards, "")


def markdown_texts(shown: Shown, columns: Sequence[Column] = COLUMNS) -> TableTexts:
    """Tables one below the other, then the profiles over all boards and the notes."""
    if isinstance(shown, Leaderboard):
        return _alone(markdown_text(shown, columns))
    boards = tuple(markdown_text(board, columns) for board in shown.boards)
    tables = "".join(f"\n{_markdown_table(table)}" for table in _profiles(shown))
    notes = "".join(["\n", *(f"- {markdown_words(note)}.\n" for note in shown.notes)]) if shown.notes else ""
    return TableTexts("", "\n", boards, tables + notes)


def latex_texts(shown: Shown, columns: Sequence[Column] = COLUMNS) -> TableTexts:
    """A `table` for each board and for each profile over all boards, then the notes."""
    if isinstance(shown, Leaderboard):
        return _alone(latex_text(shown, columns))
    boards = tuple(latex_text(board, columns) for board in shown.boards)
    tables = "".join(f"\n{_latex_table(table)}" for table in _profiles(shown))
    notes = "".join([
        "\n{\\footnotesize\n", *(f"\\noindent {tex(note)}.\\par\n" for note in shown.notes), "}\n",
    ]) if shown.notes else ""
    return TableTexts("", "\n", boards, tables + notes)


TEXTS: Mapping[str, Callable[[Shown, Sequence[Column]], TableTexts]] = {
    "csv": csv_texts, "md": markdown_texts, "tex": latex_texts,
}
"""Functions by file extension."""


def curves_of_boards(boards: Sequence[Leaderboard]) -> str:
    """One line per validation of every seed shown on any board, as `curves_to_csv` of each, with one header."""
    tables = [curves_to_csv(board).splitlines(keepends=True) for board in boards]
    heads = [lines[0] for lines in tables if len(lines) > 1]
    return "".join([*heads[:1], *(line for lines in tables for line in lines[1:])])


def shown_to_json(shown: Shown) -> str:
    """`to_json` of one study. For several: `boards`, each in that format, `notes`, and over all data sets `profile` by
    epochs and `seconds_profile` by seconds."""
    if isinstance(shown, Leaderboard):
        return to_json(shown)
    plain = {"boards": [to_plain(board) for board in shown.boards], **across_to_plain(shown)}
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)


def across_to_plain(found: ManyBoards) -> dict[str, Any]:
    """The entries that `shown_to_json` writes beside the boards."""
    return {
        "notes": list(found.notes), "profile": _profile_to_plain(found.profile),
        "seconds_profile": _profile_to_plain(found.seconds_profile),
    }


def _profile_to_plain(profile: TimeProfile | None) -> dict[str, Any] | None:
    if profile is None:
        return None
    plain = asdict(profile)
    for loss in plain["losses"]:
        loss["factors"] = [factor if math.isfinite(factor) else None for factor in loss["factors"]]
    return plain


def _alone(text: TableText) -> TableTexts:
    return TableTexts("", "", (text,), "")


def _profiles(found: ManyBoards) -> list[WordTable]:
    tables = (profile_table(each, found.boards[0].baseline) for each in (found.profile, found.seconds_profile))
    return [table for table in tables if table is not None]


def _markdown_table(table: WordTable) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(map(markdown_words, cells))} |\n"

    sides = f"| {' | '.join([':---', *['---:'] * (len(table.headings) - 1)])} |\n"
    notes = "".join(f"- {markdown_words(note)}\n" for note in table.notes)
    rows = "".join(map(line, table.rows))
    return f"**{markdown_words(table.title)}**\n\n{line(table.headings)}{sides}{rows}\n{notes}"


def _latex_table(table: WordTable) -> str:
    def line(cells: Sequence[str]) -> str:
        return " & ".join(map(tex, cells)) + r" \\"

    return "\n".join([
        r"\begin{table}", r"\centering", rf"\caption{{{tex(table.title)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(table.headings) - 1)}}}", r"\toprule", line(table.headings), r"\midrule",
        *map(line, table.rows), r"\bottomrule", r"\end{tabular}",
        *(rf"\par\footnotesize {tex(note)}" for note in table.notes), r"\end{table}", "",
    ])
