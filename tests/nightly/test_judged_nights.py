"""Nights become rows: verdicts, first losses, suspects, the headline and the exit code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from git_folders import committed, git
from night_files import LOSSES, USUAL, night_of_day, tiny_spec

from vsetune.nightly import suspects
from vsetune.nightly.history import Accepted, History
from vsetune.nightly.night import CellNight, Night, NightReport, ReportRow
from vsetune.nightly.nightly_spec import Tolerances
from vsetune.nightly.report_words import to_markdown
from vsetune.nightly.reporting import judged_first_losses, judged_rows, report_of
from vsetune.nightly.suspects import suspects_between

CELL = "vsepp.lmh"


def report(folder: Path, nights: Sequence[Night], tonight: Night) -> NightReport:
    history = History(folder)
    found = report_of(tiny_spec(), nights, tonight, history)
    history.keep(tonight)
    history.keep_report(found, "", "")
    return found


def row_of(found: NightReport, measure: str | None) -> ReportRow:
    return next(row for row in found.rows if (row.measure.name if row.measure else None) == measure)


def quiet_nights(count: int, **changes: Any) -> list[Night]:
    return [night_of_day(day, **changes) for day in range(1, count + 1)]


def test_the_baseline_and_a_quiet_night_after_it(tmp_path: Path) -> None:
    found = report(tmp_path / "first", quiet_nights(2), night_of_day(3))
    assert (found.exit_code, found.headline) == (0, "baseline night 3 of 7: 11 measures not judged yet, 1 quiet")
    assert {row.verdict for row in found.rows if row.measure} == {"baseline"}
    assert row_of(found, None).verdict == "quiet"
    assert (found.baseline_nights, found.needed) == (2, 7)
    found = report(tmp_path / "later", quiet_nights(20), night_of_day(21))
    assert (found.exit_code, found.headline) == (0, "nothing got worse: 12 quiet")
    assert found.notes == ()


def test_a_slower_step_is_a_regression_the_same_night(tmp_path: Path) -> None:
    slow = night_of_day(13, epoch_time=140.0, revision="def")
    found = report(tmp_path, quiet_nights(12), slow)
    row = row_of(found, "epoch_time")
    assert (row.verdict, row.since, found.exit_code) == ("regression", slow.date, 1)
    assert row.change == pytest.approx(0.4, abs=0.02)
    assert found.headline.startswith("1 regression: vsepp.lmh time per epoch +40")
    assert row.suspects[0].startswith("the code changed from abc to def")


def test_nights_under_other_conditions_are_not_compared_and_the_change_is_named(tmp_path: Path) -> None:
    other = replace(night_of_day(13, epoch_time=140.0), conditions={"threads": "2"})
    found = report(tmp_path, quiet_nights(12), other)
    assert found.exit_code == 0
    assert found.notes == ("conditions changed, compared with no night before: threads: 2, was 1",)
    assert row_of(found, "epoch_time").verdict == "baseline"
    back = report(tmp_path, [*quiet_nights(12), other], night_of_day(14))
    assert back.notes == ("conditions changed, compared with nights up to 2026-01-12: threads: 1, was 2",)
    assert row_of(back, "epoch_time").verdict == "quiet"


def test_an_accepted_change_begins_the_baseline_of_its_measure_anew(tmp_path: Path) -> None:
    nights = [*quiet_nights(12), night_of_day(13, epoch_time=140.0)]
    History(tmp_path).accept(Accepted(nights[-1].date, "epoch_time", CELL, "meant", "abc", "now"))
    found = report(tmp_path, nights, night_of_day(14, epoch_time=140.0))
    row = row_of(found, "epoch_time")
    assert row.verdict == "baseline"
    assert list(row.dates) == ["2026-01-13", "2026-01-14"]
    assert row_of(found, "pair_rate").verdict == "quiet"


@pytest.mark.parametrize("state", ["partial", "failed"])
def test_a_night_that_is_not_whole_is_never_counted_as_good(tmp_path: Path, state: Any) -> None:
    broken = replace(
        night_of_day(13), state=state, problems=("vsepp.lmh: 0 of 1 trials finished",),
        cells={CELL: CellNight({}, LOSSES, "0 of 1 trials finished")},
    )
    found = report(tmp_path, quiet_nights(12), broken)
    assert found.exit_code == 2
    assert "0 of 1 trials finished" in f"{found.headline} {found.notes}"
    following = report(tmp_path, [*quiet_nights(12), broken], night_of_day(14))
    assert following.exit_code == 0
    assert following.notes[0] == f"not complete before tonight: 2026-01-13 {state}"


@pytest.mark.parametrize(
    ("losses", "step", "change"),
    [((*LOSSES[:2], LOSSES[2] * 1.02), 3, 0.0196), (LOSSES[:2], 3, 0.0), ((math.inf, *LOSSES[1:]), 1, math.inf)],
)
def test_first_losses_that_differ_in_one_step_are_a_change(losses: Sequence[float], step: int, change: float) -> None:
    nights = quiet_nights(3)
    tonight = replace(night_of_day(4), revision="def", cells={CELL: CellNight({}, tuple(losses))})
    row = judged_first_losses(nights, tonight, CELL, [])
    assert (row.verdict, row.since) == ("changed", tonight.date)
    assert row.change == pytest.approx(change, rel=1e-2)
    assert f"from step {step} on" in row.text
    tomorrow = replace(tonight, date="2026-01-05")
    later = judged_first_losses([*nights, tonight], tomorrow, CELL, [])
    assert (later.verdict, later.since) == ("changed", tonight.date)
    accepted = [Accepted(tonight.date, "first_losses", None, "meant", "def", "now")]
    assert judged_first_losses([*nights, tonight], tomorrow, CELL, accepted).verdict == "quiet"


def test_first_losses_without_anything_to_compare_or_that_never_repeat_are_no_change() -> None:
    assert judged_first_losses([], night_of_day(1), CELL, []).verdict == "baseline"
    assert judged_first_losses(quiet_nights(2), night_of_day(3, cells={}), CELL, []).verdict == "missing"
    nights = [replace(night_of_day(day), cells={CELL: CellNight({}, (float(day),))}) for day in (1, 2, 3)]
    row = judged_first_losses(nights[:2], nights[2], CELL, [])
    assert row.verdict == "missing"
    assert row.text == "first losses: 3 different ones under commit abc, so they do not repeat and are not judged"
    assert judged_first_losses(nights[:1], nights[1], CELL, []).verdict == "changed"


def test_suspects_are_the_commits_between_newest_first_that_change_more_than_documents_and_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q")
    first, *_, last = [committed(tmp_path, "platform/loss.py", f"number = {number}") for number in range(8)]
    for file in ("docs/page.html", "tests/test_loss.py", "platform/README.md"):
        head = committed(tmp_path, file, "words")
    found = suspects_between(first, head, repository=tmp_path)
    assert [line.split(" ", 1)[1] for line in found] == [f"number = {number}" for number in (7, 6, 5, 4, 3)]
    assert suspects_between(first, first, repository=tmp_path) == []
    assert suspects_between(last, f"{last}+changes", repository=tmp_path) == [
        f"{last[:12]} with changes that are not committed"
    ]
    for good, bad in ((last, first), ("unknown", last), (last, head)):
        (line,) = suspects_between(good, bad, repository=tmp_path)
        assert line.startswith(f"the code changed from {good[:12]} to {bad[:12]}; git names no commit")
    monkeypatch.setattr(suspects, "PACKAGE_FOLDER", tmp_path)
    slow = night_of_day(13, epoch_time=140.0, revision=last)
    row = row_of(report(tmp_path / "history", quiet_nights(12, revision=first), slow), "epoch_time")
    assert row.suspects[0].endswith("number = 7")


def test_a_band_ends_where_values_do() -> None:
    values = np.random.default_rng(0).uniform(0, 1, 20)
    nights = [night_of_day(day, best_m_recall=94 + 5 * value, data_wait=0.01 * value)
              for day, value in enumerate(values, start=1)]
    tonight = night_of_day(21, best_m_recall=96.0, data_wait=0.002)
    rows = judged_rows(nights, tonight, [], Tolerances(baseline_nights=3), ())
    recall, wait = (next(row for row in rows if row.measure_name == name) for name in ("best_m_recall", "data_wait"))
    assert (recall.verdict, recall.high, wait.verdict, wait.low) == ("quiet", 100.0, "quiet", 0.0)


def two_cells(day: int, *, recalls: Mapping[str, float] | None = None, **changes: Any) -> Night:
    night = night_of_day(day, **changes)
    cell = replace(night.cells[CELL], first_recalls=recalls or {})
    return replace(night, cells={CELL: cell, "vsepp.lseh": cell})


def test_what_varies_too_much_is_not_judged_and_row_and_headline_say_so(tmp_path: Path) -> None:
    spec = tiny_spec(tolerances={"baseline_nights": 3})
    nights = [night_of_day(day, **{name: usual * times for name, usual in USUAL.items()})
              for day, times in ((1, 1.0), (2, 2.0), (3, 0.5))]
    found = report_of(spec, nights, night_of_day(4, best_m_recall=24.0), History(tmp_path))
    assert found.headline == "nothing can be judged: 11 baseline, 1 quiet"
    row = row_of(found, "best_m_recall")
    assert (row.verdict, row.low, row.high) == ("baseline", None, None)
    assert row.text == "best M-Recall: 24.0 points, not judged: half as much again would be quiet"
    far = report_of(spec, nights, night_of_day(4, epoch_time=1e9), History(tmp_path))
    assert row_of(far, "epoch_time").verdict == "regression", "beyond any band it is a change all the same"


RECALLS = {"image_to_text_r1": 12.5, "m_recall": 25.0}


def test_a_recall_that_is_off_by_one_is_a_change_after_the_first_night_though_all_losses_are_equal(
    tmp_path: Path
) -> None:
    nights = [two_cells(1, recalls=RECALLS)]
    quiet = report(tmp_path / "quiet", nights, two_cells(2, recalls=RECALLS))
    assert row_of(quiet, None).text == "first losses: 3 steps and 2 recalls after them equal to the last bit"
    off = report(tmp_path / "off", nights, two_cells(2, recalls={**RECALLS, "m_recall": 24.0}, revision="def"))
    row = row_of(off, None)
    assert (row.verdict, row.since, off.exit_code) == ("changed", "2026-01-02", 1)
    assert row.text == "first losses: equal, but m_recall after them differs, by up to 4 %"
    assert row.change == pytest.approx(1 / 25)
    assert off.headline.startswith(f"2 changed: {CELL} {row.text}; ")
    assert "| equal, but m\\_recall after them differs" in to_markdown(off)
    assert row.suspects[0].startswith("the code changed from abc to def")
    before = report(tmp_path / "before", [two_cells(1)], two_cells(2, recalls=RECALLS))
    assert row_of(before, None).verdict == "quiet", "nights from before recalls were taken compare losses"
