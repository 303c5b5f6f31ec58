"""A night's report as a real one looks: 12 cells, 12 rows each, two regressions and one of everything else."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta

from vsetune.nightly.night import BY_NAME, MEASURES, Measure, NightReport, ReportRow

TONIGHT = "2026-11-21"
CELLS = (
    "vsepp.lmh", "vsepp.lseh", "vsepp.infonce", "vse_infty.lmh", "vse_infty.lseh", "pvse.pvse", "pcme.pcme", "scan.lmh",
    "sgraf.lmh", "gsmn.lmh", "vsrn.luwm", "clip_head.top_f",
)
USUAL = {
    "best_m_recall": (61.2, 0.5), "epochs_to_target": (2.1, 0.08), "m_recall_area": (48.3, 0.4),
    "epoch_time": (812.0, 9.0), "pair_rate": (2.46, 0.03), "peak_memory": (1.31e9, 6e6), "start_time": (5400.0, 300.0),
    "data_wait": (0.042, 0.004), "step_time": (1.4, 0.02), "step_wall_time": (1.5, 0.03),
    "epoch_wall_time": (840.0, 12.0),
}
"""By measure: where quiet nights lie and how far they scatter."""
HOSTILE = "<img src=x onerror=alert(1)> | `code` [link](http://evil.example) @everyone #12 *bold* \\ end"
_NIGHTS, _MISSED = 30, 11


def sample_report(seed: int = 0) -> NightReport:
    """The same for the same seed."""
    draw = random.Random(seed)
    days = [date.fromisoformat(TONIGHT) - timedelta(days=_NIGHTS - 1 - n) for n in range(_NIGHTS) if n != _MISSED]
    names = [day.isoformat() for day in days]
    rows = [_quiet(cell, measure, names, draw) for cell in CELLS for measure in MEASURES]
    rows += [ReportRow(cell, None, "quiet", names, [None] * len(names), None) for cell in CELLS]
    rows.sort(key=lambda row: CELLS.index(row.cell))
    changed = _changes(rows)
    rows = [changed.get((row.cell, row.measure.name if row.measure else ""), row) for row in rows]
    return NightReport(
        "scenes", TONIGHT, "3f2a9c1e77b0", 1,
        "2 regressions: best M-Recall of vsepp.lseh (−2.9 points), time per epoch of sgraf.lmh (+21.4 %)",
        (
            "the night of 2026-11-03 is missing: no night of that date was recorded",
            "vsrn.luwm begins a new line tonight: torch 2.7.1 became 2.8.0",
            "pcme.pcme: 1 of 3 seeds failed (out of memory); its measures are not judged",
        ),
        tuple(rows), "At most one false alarm in 30 quiet nights for the whole report.", 28, 7,
        f"{TONIGHT}T02:00:04+00:00", f"{TONIGHT}T02:09:41+00:00", study="nightly-scenes-2026-11-21",
    )


def short_report() -> NightReport:
    """One regression whose cell and suspect were written by somebody who means harm, and one quiet row."""
    measure, days = BY_NAME["best_m_recall"], ["2026-11-20", TONIGHT]
    rows = [
        ReportRow(HOSTILE, measure, "regression", days, [61.0, 58.0], 58.0, 61.0, 60.0, 62.0, -3.0, TONIGHT,
                  (HOSTILE,), HOSTILE),
        ReportRow("vsepp.lmh", measure, "quiet", days, [61.0, 61.2], 61.2, 61.0, 60.0, 62.0, 0.2),
    ]
    return replace(sample_report(), headline=f"worse: {HOSTILE}", notes=(HOSTILE,), rows=tuple(rows))


def _quiet(cell: str, measure: Measure, days: Sequence[str], draw: random.Random) -> ReportRow:
    centre, scatter = USUAL[measure.name]
    centre *= 1 + 0.02 * (CELLS.index(cell) % 5)
    values: list[float | None] = [draw.gauss(centre, scatter) for _ in days]
    last = values[-1]
    assert last is not None
    change = last / centre - 1 if measure.scale == "ratio" else last - centre
    low, high = centre - 3 * scatter, centre + 3 * scatter
    return ReportRow(cell, measure, "quiet", days, values, last, centre, low, high, change)


def _moved(row: ReportRow, by: float, nights: int) -> ReportRow:
    """The last nights of a row lie elsewhere. by: as `change` is written."""
    assert row.measure is not None
    assert row.centre is not None
    ratio = row.measure.scale == "ratio"
    values = [value if value is None or n < len(row.values) - nights else value * (1 + by) if ratio else value + by
              for n, value in enumerate(row.values)]
    return replace(row, values=values, tonight=values[-1], change=by, since=row.dates[-nights])


def _changes(rows: Sequence[ReportRow]) -> dict[tuple[str, str], ReportRow]:
    found = {(row.cell, row.measure.name if row.measure else ""): row for row in rows}
    changed = {
        ("vsepp.lseh", "best_m_recall"): replace(
            _moved(found["vsepp.lseh", "best_m_recall"], -2.9, 3), verdict="regression",
            suspects=("9d0c2b4 Weight the hardest negative once (A. Writer, 2026-11-18)",
                      "51be77a Read shards in two threads (B. Writer, 2026-11-18)"),
            text="best M-Recall: −2.9 points worse, since 2026-11-19"),
        ("sgraf.lmh", "epoch_time"): replace(
            _moved(found["sgraf.lmh", "epoch_time"], 0.214, 1), verdict="regression",
            suspects=("3f2a9c1 Normalize regions in the attention loop (C. Writer, 2026-11-20)",),
            text="time per epoch: +21.4 % worse"),
        ("sgraf.lmh", ""): replace(
            found["sgraf.lmh", ""], verdict="changed", since=TONIGHT, text="first losses: differ from step 1 on",
            suspects=("3f2a9c1 Normalize regions in the attention loop (C. Writer, 2026-11-20)",)),
        ("gsmn.lmh", "start_time"): replace(
            _moved(found["gsmn.lmh", "start_time"], -0.62, 2), verdict="improvement",
            text="time to start a trial: −62.0 % better, since 2026-11-20"),
    }
    for row in rows:
        key = (row.cell, row.measure.name if row.measure else "")
        if row.cell == "pcme.pcme":
            values = [*row.values[:-1], None]
            name = row.measure.text if row.measure else "first losses"
            changed[key] = replace(row, verdict="missing", values=values, tonight=None, change=None,
                                   text=f"{name}: not measured tonight (1 of 3 seeds failed: out of memory)")
        if row.cell == "vsrn.luwm":
            changed[key] = replace(row, verdict="baseline", dates=row.dates[-1:], values=row.values[-1:], low=None,
                                   high=None, centre=None, change=None)
    return changed
