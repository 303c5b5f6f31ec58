"""Tonight held against its history: nights become arrays, judgements become the rows of a report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vsetune.nightly.first_losses import judged_first_losses
from vsetune.nightly.history import Accepted
from vsetune.nightly.judging.all_cells import all_cells
from vsetune.nightly.judging.judge import Judgement, judge
from vsetune.nightly.judging.tolerance import Tolerance
from vsetune.nightly.lines import changed_conditions, counts_from, line_of
from vsetune.nightly.measures import ALL_CELLS, MEASURES, Measure
from vsetune.nightly.night import Night
from vsetune.nightly.report import ReportRow
from vsetune.nightly.sentences import sentence
from vsetune.nightly.suspects import CommitRange, Suspects, commits_in

Told = Mapping[tuple[str, str, str], str]
"""What earlier reports said: (date, cell, measure) to the verdict."""


@dataclass(frozen=True)
class Stream:
    """A measure of a cell."""

    cell: str
    measure: Measure


def judged_rows(
    nights: Sequence[Night], tonight: Night, cells: Sequence[str], accepted: Sequence[Accepted], tolerance: Tolerance,
    told: Told,
) -> list[ReportRow]:
    """A row for every cell and measure, one for the first losses of every cell, and one for every measure over all
    cells: a step that is a little slower everywhere is seen there first.

    nights: all earlier ones, of any conditions. cells: of tonight's file, in its order.
    """
    line = line_of(nights, tonight)
    suspects = changed_conditions(nights, tonight)
    streams = [Stream(cell, measure) for cell in cells for measure in MEASURES]
    past = np.array([[_counted(night, stream, accepted, tonight.date) for stream in streams] for night in line])
    past = past.reshape(len(line), len(streams))
    now = np.array([_value(tonight, stream) for stream in streams])
    together = all_cells(past, now, [stream.measure for stream in streams], tolerance)
    past, now = np.hstack([past, together.past]), np.append(now, together.tonight)
    measures = [*(stream.measure for stream in streams), *together.measures]
    streams += [Stream(ALL_CELLS, measure) for measure in together.of]
    alarmed = np.array([
        [told.get((night.date, s.cell, s.measure.name)) in ("regression", "improvement") for s in streams]
        for night in line
    ], dtype=np.bool_).reshape(past.shape)
    judgements = judge(past, now, measures, tolerance, alarmed=alarmed)
    rows = [
        _row(stream, judgement, line, tonight, np.append(past[:, column], now[column]), suspects,
             _begin(line, stream, accepted, tonight.date))
        for column, (stream, judgement) in enumerate(zip(streams, judgements, strict=True))
    ]
    first = [judged_first_losses(line, tonight, cell, accepted) for cell in cells]
    order = {cell: place for place, cell in enumerate([ALL_CELLS, *cells])}
    return sorted([*rows, *first], key=lambda row: (order[row.cell], _place(row.measure)))


def nights_in_line(nights: Sequence[Night], tonight: Night, accepted: Sequence[Accepted]) -> int:
    """How many nights tonight is held against where nothing but the whole report was accepted."""
    everything = [each for each in accepted if each.cell is None and each.measure is None]
    begin = counts_from(everything, "", "", tonight.date)
    return sum(night.date >= begin for night in line_of(nights, tonight))


def _place(measure: Measure | None) -> int:
    """As in the table of measures; the first losses come last."""
    return len(MEASURES) if measure is None else MEASURES.index(measure)


def _value(night: Night, stream: Stream) -> float:
    """NaN where the cell is incomplete or the measure could not be taken."""
    cell = night.cells.get(stream.cell)
    if cell is None or cell.trouble is not None:
        return math.nan
    return float(cell.values.get(stream.measure.name, math.nan))


def _counted(night: Night, stream: Stream, accepted: Sequence[Accepted], date: str) -> float:
    """The same, and NaN before the line of the stream was moved."""
    is_before = night.date < counts_from(accepted, stream.cell, stream.measure.name, date)
    return math.nan if is_before else _value(night, stream)


def _begin(line: Sequence[Night], stream: Stream, accepted: Sequence[Accepted], date: str) -> int:
    """How many nights of the line are before the one that the stream's own line was moved to."""
    begin = counts_from(accepted, stream.cell, stream.measure.name, date)
    return sum(night.date < begin for night in line)


def _row(
    stream: Stream, judgement: Judgement, line: Sequence[Night], tonight: Night, nights: np.ndarray,
    conditions: Sequence[str], begin: int,
) -> ReportRow:
    """nights: values of the line, tonight's last. begin: index of the first night of the stream's own line."""
    dates = [night.date for night in line] + [tonight.date]
    values = list(map(_known, nights))
    since = None if judgement.since is None else dates[judgement.since]
    cell = tonight.cells.get(stream.cell)
    is_change = judgement.verdict in ("regression", "improvement")
    commits = _commits(line, tonight, since or tonight.date) if is_change else Suspects([])
    row = ReportRow(
        cell=stream.cell, measure=stream.measure, verdict=judgement.verdict, dates=dates[begin:], values=values[begin:],
        tonight=values[-1], centre=judgement.centre, low=stream.measure.possible(judgement.low),
        high=stream.measure.possible(judgement.high), change=judgement.change, since=since,
        found_by=judgement.found_by, suspects=[*(conditions if is_change else []), *commits.lines],
        suspects_note=commits.note, autocorrelation=judgement.autocorrelation,
    )
    return sentence(row, trouble=None if cell is None else cell.trouble)


def _commits(line: Sequence[Night], tonight: Night, since: str) -> Suspects:
    """Between the last night before the change and the first one with it; up to tonight where these have one code."""
    before = [night for night in line if night.date < since]
    if not before:
        return Suspects([])
    first = next((night for night in (*line, tonight) if night.date >= since), tonight)
    good = before[-1].revision
    return commits_in(CommitRange(good, first.revision if first.revision != good else tonight.revision))


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
