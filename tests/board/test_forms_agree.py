"""Words of cells and sentences, and CSV, have the numbers of JSON: rounded, never another number.

Terminal, page, Markdown and LaTeX of the same boards show these words, see test_recorded_views.
"""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest

from vsetune.board.board_sentences import findings
from vsetune.board.columns import COLUMNS, columns_of
from vsetune.board.export import to_csv, to_json

NUMBER = re.compile(r"[+−]?(?:\d[\d,]*(?:\.\d+)?|∞)")
NAMES = ("data", "network", "loss")


@pytest.fixture
def board(golden):
    return golden


def ends(bounds: list[float | None] | None) -> list[float]:
    """Of an interval in JSON, whose open end is the text Infinity."""
    return [] if bounds is None else [float(end) for end in bounds]


def of_missed(missed: int, seeds: int) -> list[float]:
    """The numbers of `not reached (2 of 9 seeds)`; none where all or no seeds missed the target."""
    return [missed, seeds] if 0 < missed < seeds else []


def numbers_of(row: dict[str, Any]) -> dict[str, tuple[list[float], int]]:
    """The displayed part of a row of JSON: its numbers in order, and to how many digits."""
    comparison, difference, target = row["comparison"] or {}, row["difference"] or {}, row["epochs_to_target"] or {}
    ended = [seed for seed in row["seeds"] if seed["status"] == "finished"]
    counted = [seed for seed in ended if not seed["chose"]] or ended
    if comparison and (comparison["m_recall"] is None or comparison["height"] == "one search"):
        difference = {}  # of one search of a tuned loss it means nothing
    has_interval, pace = difference.get("low") is not None, comparison.get("epochs")
    found = {
        "best M-Recall": ([row["best_m_recall"], row["best_m_recall_std"], *ends(row["m_recall_bounds"])], 1),
        "M-Recall over the baseline": ([comparison.get("m_recall"), *ends(comparison.get("m_recall_bounds"))], 1),
        "epochs to best": ([row["epochs_to_best"]], 2), "epochs to level": ([row["epochs_to_level"]], 2),
        "epochs to baseline's best": ([target.get("value"), *ends(row["epochs_bounds"])], 2),
        "epochs to target over baseline's": (
            [pace["percent"], *ends(comparison["epochs_bounds"])] if pace and pace["percent"] is not None
            else of_missed(pace["missed"], pace["seeds"]) if pace else [], 1,
        ),
        "Difference (untested)": ([difference["percent"], *(
            ends([difference["low"], difference["high"]]) if has_interval else []
        )] if difference and difference["percent"] is not None else of_missed(
            round(difference["censored_share"] * difference["pairs"]), difference["pairs"]
        ) if difference else [], 1),
        "s/epoch": ([row["seconds_per_epoch"]], 1), "device-seconds": ([row["cost"]["device_seconds"]], 0),
        "US$": ([None if row["cost"]["unpriced_seconds"] else row["cost"]["usd"]], 2),
        "trials": ([row["trials"]], 0), "seeds": ([len(counted)], 0),
    }
    return {title: ([each for each in values if each is not None], digits) for title, (values, digits) in found.items()}


def read(words: str) -> list[float]:
    return [float(each.replace(",", "").replace("−", "-").replace("∞", "inf")) for each in NUMBER.findall(words)]


def assert_same(words: str, values: list[float], digits: int) -> None:
    """That the words have these numbers, in their order, rounded."""
    found = read(words)
    assert len(found) == len(values), (words, values)
    for number, value in zip(found, values, strict=True):
        assert number == value or abs(number - value) <= 0.5 * 10**-digits + 1e-9, (words, values)


def test_every_number_of_a_cell_is_that_of_json_rounded(board):
    for row, plain in zip(board.rows, json.loads(to_json(board))["rows"], strict=True):
        cells = {column.title: column.words(row) for column in columns_of("page", COLUMNS, board.rows)}
        assert [cells[name] for name in NAMES] == [plain["dataset"], plain["network"], plain["loss"]]
        expected = numbers_of(plain)
        assert set(cells) == {*NAMES, *expected}
        for title, (values, digits) in expected.items():
            assert_same(cells[title], values, digits)
        is_bound = plain["epochs_to_target"] is not None and plain["epochs_to_target"]["censored"]
        assert (">" in cells["epochs to baseline's best"]) == is_bound
        assert cells["Difference (untested)"] == plain["difference_shown"]


def test_csv_has_the_numbers_of_json_to_the_last_digit(board):
    rows, of_row = json.loads(to_json(board))["rows"], ("dataset", "network", "loss")
    lines = {tuple(line[name] for name in of_row): line for line in csv.DictReader(io.StringIO(to_csv(board)))}
    assert len(lines) == len(rows)
    for row in rows:
        line = lines[tuple(row[name] for name in of_row)]
        comparison, difference = row["comparison"] or {}, row["difference"] or {}
        target = row["epochs_to_target"] or {}
        pairs = {
            **{name: row[name] for name in ("best_m_recall", "best_m_recall_std", "epochs_to_best", "epochs_to_level",
                                            "seconds_per_epoch", "trials")},
            "m_recall_gain": comparison.get("m_recall"), "m_recall_gain_p": comparison.get("height_p"),
            "improvement": comparison.get("improvement"), "epochs_p": comparison.get("epochs_p"),
            "epochs_percent": comparison.get("epochs", {}).get("percent"),
            "target_m_recall": comparison.get("epochs", {}).get("target"),
            "seeds_without_target": comparison.get("epochs", {}).get("missed"),
            "epochs_to_target": target.get("value"), "difference_percent": difference.get("percent"),
            "device_seconds": row["cost"]["device_seconds"], "curve_noise": row["noise"],
        }
        for name, bounds in (
            ("best_m_recall", row["m_recall_bounds"]), ("m_recall_gain", comparison.get("m_recall_bounds")),
            ("improvement", comparison.get("improvement_bounds")),
            ("epochs_percent", comparison.get("epochs_bounds")), ("epochs_to_target", row["epochs_bounds"]),
        ):
            low, high = ends(bounds) or (None, None)
            pairs |= {f"{name}_low": low, f"{name}_high": high}
        for name, value in pairs.items():
            assert line[name] == ("" if value is None else str(value)), name
        for name, key in (("gets_higher", "height"), ("is_sooner", "epochs_answer")):
            assert line[name] == comparison.get(key, "")


def test_the_sentences_of_a_comparison_have_the_words_of_its_cells(board):
    compared = [row for row in board.rows if row.comparison]
    titles = ("M-Recall over the baseline", "epochs to target over baseline's")
    for row in compared:
        said = " ".join(each for each in findings(board) if each.startswith(f"{row.network} {row.loss} "))
        cells = {column.title: column.words(row) for column in columns_of("page", COLUMNS, board.rows)}
        assert all(cells[title] in said for title in titles), said
        found = row.comparison
        assert_same(said.partition("epochs to ")[2].partition(" %")[0], [found.epochs.target], 1)
        for p_value, answer in ((found.height_p, found.height), (found.epochs_p, found.epochs_answer)):
            is_tested = answer in ("supported", "contradicted", "undecided")
            assert (f"p = {p_value:.3f}" in said or (p_value < 0.001 and "p < 0.001" in said)) == is_tested
    assert compared
