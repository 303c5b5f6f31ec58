"""The page, the mail and the Markdown of a night: foreign text stays text, and the page makes no request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import drawn_classes
import pytest
from markdown_it import MarkdownIt
from night_reports import CELLS, HOSTILE, sample_report, short_report

from vsetune.nightly import report_words as words
from vsetune.nightly.night import BY_NAME, ReportRow
from vsetune.nightly.report_page import HEIGHT, WIDTH, sparkline, to_html
from vsetune.nightly.report_words import MOST_FINDINGS, escaped, to_markdown


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def test_the_page_shows_every_row_without_a_request_or_a_script() -> None:
    report, html = sample_report(), to_html(sample_report())
    page = Page(html)
    assert all(part in page.text for part in (report.headline, "Exit code 1", "✗ 1 regression", *report.notes))
    assert page.tags.count("tr") == len(report.rows) + len(words.findings(report.rows)) + len(CELLS) + 1
    assert page.tags.count("details") == len(CELLS)
    assert not {"script", "link", "img", "iframe", "form", "a"} & set(page.tags)
    assert not {"src", "href", "style"} & {name for name, _ in page.attributes}
    assert "url(" not in html
    assert "@import" not in html
    assert drawn_classes.without_rule(html) == set()


def test_cells_with_findings_are_unfolded_and_quiet_ones_are_not() -> None:
    unfolded = re.findall(r"<details open>\s*<summary><strong>([^<]*)", to_html(sample_report()))
    assert unfolded == ["vsepp.lseh", "sgraf.lmh", "gsmn.lmh"]
    assert "<details>" not in to_html(short_report())


def test_foreign_text_is_text_on_the_page() -> None:
    page = Page(to_html(short_report()))
    assert "img" not in page.tags
    assert HOSTILE in " ".join(page.texts)


def test_foreign_text_is_text_in_markdown() -> None:
    made = to_markdown(short_report())
    page = Page(MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(made))
    assert not {"img", "a", "code", "em"} & set(page.tags)
    assert page.tags.count("td") == 7  # one row: quiet ones are only counted
    assert "".join(page.texts).replace("\u200b", "").count(HOSTILE) == 4  # headline, cell, suspect, note
    assert "@everyone" not in made
    assert "#12" not in made


@pytest.mark.parametrize("text", [
    "1. first", "- item", "# head", "a_b _c_ __d__", "x\ny", "https://evil.example www.evil.example", "|", "+1", "+ 1",
    "1)", "---", "===", "#", "-",
])
def test_markdown_shows_a_line_as_it_is(text: str) -> None:
    page = Page(MarkdownIt("commonmark").render(f"- {escaped(text)}"))
    assert page.tags == ["ul", "li"]
    assert "".join(page.texts).replace("\u200b", "").strip() == " ".join(text.split())


def test_markdown_of_a_night_with_very_many_findings_stays_short() -> None:
    report = sample_report()
    row = next(row for row in report.rows if row.verdict == "regression")
    many = to_markdown(replace(report, rows=[replace(row, cell=f"network{n}.loss") for n in range(500)]))
    assert f"And {500 - MOST_FINDINGS} more" in many
    assert len(many) < 60_000


def test_the_facts_and_the_meaning_of_the_exit_code_are_on_page_and_markdown() -> None:
    report = replace(sample_report(), revision="3f2a9c1e77b0" + "0" * 28 + "+changes", promise="at most one")
    assert "code: 3f2a9c1e77b0+changes; ran: 2026-11-21 02:00 UTC, 9.6 min; " in to_markdown(report)
    assert "promise: at most one\n" in to_markdown(report)
    failed = replace(report, exit_code=2, rows=[], headline="could not run: no space left", notes=[], ended="")
    for text in (Page(to_html(failed)).text, to_markdown(failed)):
        assert "Exit code 2: the night could not run, or is not complete" in text


def test_a_cell_that_was_not_measured_is_in_the_table_of_its_cell_alone() -> None:
    report = sample_report()
    assert {row.verdict for row in words.findings(report.rows)} == {"regression", "changed", "improvement"}
    assert "? 12 missing" in Page(to_html(report)).text
    row = replace(short_report().rows[0], cell="vsepp.lmh", suspects=[], text="")
    assert to_markdown(replace(short_report(), rows=[row])).count("| −3.0 points |  |") == 1


@pytest.mark.parametrize(("name", "tonight", "band", "change", "expected"), [
    ("best_m_recall", 58.14, (60.0, 62.08), -2.94, ("58.1 points", "60.0 to 62.1 points", "−2.9 points")),
    ("epoch_time", 1050.4, (801.2, 855.0), 0.2138, ("1,050 products", "801 to 855 products", "+21.4 %")),
    ("peak_memory", 1.31e9, (1.29e9, 1.33e9), 0.004, ("1,249 MiB", "1,230 to 1,268 MiB", "+0.4 %")),
    ("data_wait", 0.042, (0.03, 0.055), 0.01, ("4.2 %", "3.0 to 5.5 %", "+1.0 pp")),
    ("epochs_to_target", 2.1, (0.0, 0.0), 0.0, ("2.10 epochs", "0.00 to 0.00 epochs", "0.00 epochs")),
    ("pair_rate", 0.00123, (None, None), None, ("0.00123 pairs", "–", "–")),
    ("epoch_time", 1e20, (1e-300, float("inf")), float("inf"),
     ("1e+20 products", "1e−300 to inf products", "+inf %")),
])
def test_a_value_is_shown_in_the_unit_of_its_measure(
    name: str, tonight: float, band: Sequence[float | None], change: float | None, expected: Sequence[str]
) -> None:
    row = ReportRow("c", BY_NAME[name], "quiet", ["2026-01-01"], [tonight], tonight, None, *band, change)
    assert (words.tonight_words(row), words.band_words(row), words.change_words(row)) == expected


def picture_of(values: Sequence[float | None], days: Sequence[str] = (), **others: float) -> dict[str, Any]:
    days = days or [f"2026-01-{day + 1:02d}" for day in range(len(values))]
    made = sparkline(ReportRow("c", BY_NAME["best_m_recall"], "quiet", days, values, values[-1], **others))
    assert made is not None
    return made


def numbers(path: str) -> list[float]:
    return [float(text) for text in re.findall(r"[\d.]+", path)]


def test_a_sparkline_stays_in_its_picture_and_has_gaps_where_nights_have_no_value() -> None:
    made = picture_of([60.0, None, 61.0, 62.0, 55.0], low=59.0, high=63.0, centre=61.0)
    assert made["path"].count("M") == 2
    assert made["path"].startswith(f"M{numbers(made['path'])[0]} {numbers(made['path'])[1]} h0 M")  # a dot
    places = numbers(made["path"].replace("h0", ""))
    assert all(0 <= x <= WIDTH for x in places[::2])
    assert all(0 <= y <= HEIGHT for y in places[1::2])
    top, height = made["band"]
    assert 0 <= top < made["centre"] < top + height < made["tonight"][1]  # below the band is further down


def test_a_sparkline_of_equal_values_is_in_the_middle_and_without_values_there_is_none() -> None:
    assert picture_of([5.0, 5.0, 5.0])["tonight"][1] == HEIGHT / 2
    assert sparkline(ReportRow("c", BY_NAME["best_m_recall"], "quiet", ["2026-01-01"], [None], None)) is None
