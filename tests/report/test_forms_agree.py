"""Page, CSV and JSON have the same numbers of every row, and all forms the same sentences; the rest is recorded.

Words are read back from what is written and held against the numbers of JSON: rounded, never another number.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from rich.console import Console

from vsetune.report.export import to_csv, to_json, to_latex, to_markdown
from vsetune.report.page import to_html
from vsetune.report.terminal import render_table

NUMBER = re.compile(r"[+−]?(?:\d[\d,]*(?:\.\d+)?|∞)")
OF_TEX = {
    r"\textbackslash{}": "\\", r"$\pm$": "±", r"$\infty$": "∞", "$-$": "−", "$<$": "<", "$>$": ">", "--": "–",
} | {f"\\{sign}": sign for sign in "&%$#_{}"} | {"-{}-": "--"}
"""Signs as LaTeX has them."""
NAMES = ("data", "network", "loss")


@pytest.fixture(params=["decided", "rising"])
def board(request):
    return request.getfixturevalue(request.param)


class _Cells(HTMLParser):
    """Cells of the first table, [heading, text] of every row, and the sentences of the lists."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[list[str]]] = []
        self.sentences: list[str] = []
        self._into: list[str] | None = None
        self._marks = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        about = dict(attrs)
        if tag == "tr" and "data-key" in about and "class" in about:
            self.rows.append([])
        elif tag == "td" and "data-sort" in about:
            self.rows[-1].append([about["data-label"], ""])
            self._into = self.rows[-1][-1]
        elif tag == "li":
            self._into = ["", ""]
        elif tag in ("sup", "span") and self._into is not None:
            self._marks += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in ("sup", "span") and self._into is not None:
            self._marks -= 1
        elif tag in ("td", "li"):
            if tag == "li" and self._into is not None:
                self.sentences.append(self._into[1])
            self._into = None

    def handle_data(self, data: str) -> None:
        if self._into is not None and not self._marks:
            self._into[1] += data


def of_page(board) -> list[dict[str, str]]:
    rows = _Cells(to_html(board)).rows
    return [{title: " ".join(words.split()) for title, words in row} for row in rows]


def plain(latex: str) -> str:
    for told, sign in OF_TEX.items():
        latex = latex.replace(told, sign)
    return latex


def of_terminal(board) -> str:
    console = Console(width=300, file=io.StringIO(), color_system=None)
    console.print(render_table(board))
    return console.file.getvalue()


def rows_in_order(told: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of JSON, those of one network after another as tables have them."""
    networks = list(dict.fromkeys(row["network"] for row in told["rows"]))
    return sorted(told["rows"], key=lambda row: networks.index(row["network"]))


def ends(bounds: list[float | None] | None) -> list[float]:
    """Of an interval in JSON, whose open end is null."""
    return [] if bounds is None else [math.inf if end is None else end for end in bounds]


def numbers_of(row: dict[str, Any]) -> dict[str, tuple[list[float], int]]:
    """What people read in a row of JSON: its numbers in order, and to how many digits."""
    comparison, difference, target = row["comparison"] or {}, row["difference"] or {}, row["epochs_to_target"] or {}
    counted = [seed for seed in row["seeds"] if seed["status"] == "finished" and not seed["chose"]]
    has_interval = difference.get("low") is not None
    found = {
        "best M-Recall": ([row["best_m_recall"], row["best_m_recall_std"], *ends(row["m_recall_bounds"])], 1),
        "M-Recall over the baseline": ([comparison.get("m_recall"), *ends(comparison.get("m_recall_bounds"))], 1),
        "epochs to best": ([row["epochs_to_best"]], 2), "epochs to level": ([row["epochs_to_level"]], 2),
        "epochs to baseline's best": ([target.get("value"), *ends(row["epochs_bounds"])], 2),
        "Difference": ([difference.get("percent"), *(
            ends([difference["low"], difference["high"]]) if has_interval else []
        )], 1),
        "s/epoch": ([row["seconds_per_epoch"]], 1), "device-seconds": ([row["cost"]["device_seconds"]], 0),
        "trials": ([row["trials"]], 0), "seeds": ([len(counted)], 0),
    }
    return {title: ([each for each in values if each is not None], digits) for title, (values, digits) in found.items()}


def read(words: str) -> list[float]:
    return [float(each.replace(",", "").replace("−", "-").replace("∞", "inf")) for each in NUMBER.findall(words)]


def assert_same(words: str, values: list[float], digits: int) -> None:
    """That the words have these numbers, in their order, rounded."""
    told = read(words)
    assert len(told) == len(values), (words, values)
    for number, value in zip(told, values, strict=True):
        assert number == value or abs(number - value) <= 0.5 * 10**-digits + 1e-9, (words, values)


def test_every_number_of_the_page_is_that_of_json_rounded(board):
    told = rows_in_order(json.loads(to_json(board)))
    for cells, row in zip(of_page(board), told, strict=True):
        assert [cells[name] for name in NAMES] == [row["dataset"], row["network"], row["loss"]]
        expected = numbers_of(row)
        assert set(cells) == {*NAMES, *expected}
        for title, (values, digits) in expected.items():
            assert_same(cells[title], values, digits)
        is_bound = row["epochs_to_target"] is not None and row["epochs_to_target"]["censored"]
        assert ">" in cells["epochs to baseline's best"] if is_bound else ">" not in cells["epochs to baseline's best"]
        assert cells["Difference"] == row["difference_shown"]


def test_csv_has_the_numbers_of_json_to_the_last_digit(board):
    told = rows_in_order(json.loads(to_json(board)))
    for line, row in zip(csv.DictReader(io.StringIO(to_csv(board))), told, strict=True):
        comparison, difference = row["comparison"] or {}, row["difference"] or {}
        target = row["epochs_to_target"] or {}
        pairs = {
            **{name: row[name] for name in ("best_m_recall", "best_m_recall_std", "epochs_to_best", "epochs_to_level",
                                            "seconds_per_epoch", "trials")},
            "m_recall_gain": comparison.get("m_recall"), "m_recall_gain_p": comparison.get("height_p"),
            "improvement": comparison.get("improvement"), "epochs_p": comparison.get("epochs_p"),
            "seeds_sooner": comparison.get("sooner"), "seeds_later": comparison.get("later"),
            "epochs_to_target": target.get("value"), "difference_percent": difference.get("percent"),
            "device_seconds": row["cost"]["device_seconds"], "curve_noise": row["noise"],
        }
        for name, bounds in (
            ("best_m_recall", row["m_recall_bounds"]), ("m_recall_gain", comparison.get("m_recall_bounds")),
            ("improvement", comparison.get("improvement_bounds")), ("epochs_to_target", row["epochs_bounds"]),
        ):
            low, high = ends(bounds) or (None, None)
            pairs |= {f"{name}_low": low, f"{name}_high": high}
        for name, value in pairs.items():
            assert line[name] == ("" if value is None else str(value)), name
        assert (line["gets_higher"], line["is_sooner"]) == (comparison.get("height", ""), comparison.get("epochs", ""))


def test_what_is_said_of_every_comparison_is_the_same_everywhere_and_has_the_numbers_of_json(board):
    told = json.loads(to_json(board))
    sentences = [*told["findings"], *told["notes"]]
    assert _Cells(to_html(board)).sentences[: len(sentences)] == sentences
    assert [plain(line.removeprefix(r"\par\footnotesize ")) for line in to_latex(board).splitlines()
            if line.startswith(r"\par")] == sentences
    shown = " ".join(of_terminal(board).split())
    for sentence in sentences:
        assert " ".join(sentence.split()) in shown
        assert re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", sentence) in to_markdown(board)
    compared = [row for row in told["rows"] if row["comparison"]]
    assert compared
    for row in compared:
        (sentence,) = [
            each for each in told["findings"]
            if re.match(rf"{row['network']} ([\w, ]*, )?{row['loss']}(,[\w, ]*)? against", each)
        ]
        assert_same(_without_method(sentence), _said(row), 3)


def _without_method(sentence: str) -> str:
    """The numbers of a sentence, without the length of training and a p-value that is but bounded."""
    return re.sub(r"p < 0\.001| within \d+ epochs", "", sentence.partition(" against ")[2])


def _said(row: dict[str, Any]) -> list[float]:
    """The numbers that JSON has for a sentence, rounded as the sentence rounds them, in its order."""
    comparison, numbers = row["comparison"], numbers_of(row)
    gain, difference = (_rounded(*numbers[title]) for title in ("M-Recall over the baseline", "Difference"))
    of_height, of_epochs = ([p] if p >= 0.001 else [] for p in (comparison["height_p"], comparison["epochs_p"]))
    tested = ("supported", "contradicted", "undecided")
    height = [*gain, *of_height] if comparison["height"] in tested else [comparison["height_seeds"], *gain]
    match comparison["epochs"]:
        case "no yardstick":
            epochs = []
        case "too few seeds":
            epochs = [comparison["epochs_seeds"]]
        case _:
            epochs = [comparison["sooner"], comparison["later"], *difference, *of_epochs]
    return [float(each) for each in (len(comparison["seeds"]), *height, *epochs)]


def _rounded(values: list[float], digits: int) -> list[float]:
    return [value if math.isinf(value) else math.floor(abs(value) * 10**digits + 0.5) / 10**digits
            * math.copysign(1, value) for value in values]
