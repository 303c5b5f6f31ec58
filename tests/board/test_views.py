"""Terminal, CSV, JSON, the page and its charts, all made from one leaderboard; their texts are recorded elsewhere."""

import csv
import io
import json
import re
from html.parser import HTMLParser

import drawn_classes
import pytest
from board_attempts import NEW
from rich.console import Console

from vsetune.board import vega, wording
from vsetune.board.building import build
from vsetune.board.charts import band, curve_charts, height_chart, loss_colours
from vsetune.board.export import curves_to_csv, to_csv, to_json, to_latex, to_markdown
from vsetune.board.page import to_html
from vsetune.board.terminal import render_table
from vsetune.metrics.efficiency import SeedDifference

HOSTILE = '<img src=x onerror="alert(1)">&\'_%$[bold]'


@pytest.fixture
def board(attempt):
    return build(
        [attempt("lmh"), attempt("lseh", NEW), attempt("lsh", NEW[:3]), attempt("lseh", [5], configuration=1,
                                                                              status="pruned")],
        baseline="lmh",
    )


@pytest.fixture
def hostile(attempt):
    return build([attempt("lmh"), attempt(HOSTILE, NEW)], baseline="lmh")


def shown(board, width=140):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(render_table(board))
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(0.25, 1, "0.3"), (-0.25, 1, "−0.3"), (2.5, 0, "3"), (12345.6, 0, "12,346"), (-0.04, 1, "0.0"), (None, 1, "–"),
     (float("inf"), 1, "∞"), (0.15, 1, "0.2")],
)
def test_numbers_are_rounded_half_away_from_zero(value, digits, text):
    assert wording.fixed(value, digits) == text


def test_a_bounded_difference_is_shown_as_a_bound():
    assert wording.difference(SeedDifference(-12.04, True, None, None, 1, 1.0)) == "> −12.0 %"
    assert wording.difference(SeedDifference(-33.3333, False, -40.1, -20.0, 5, 0.0)) == "−33.3 % [−40.1, −20.0]"


def test_json_has_no_number_that_json_lacks_and_curves_a_line_for_each_validation(board, confirmed):
    plain = json.loads(to_json(board), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    rows = {row["loss"]: row for row in plain["rows"]}
    assert rows["lseh"]["difference"]["percent"] == pytest.approx(-100 / 3)
    assert (rows["lsh"]["difference"]["percent"], rows["lsh"]["difference_shown"]) == (None, "not reached")
    assert rows["lseh"]["counts"] == {"finished": 1, "pruned": 1}
    lines = list(csv.DictReader(io.StringIO(curves_to_csv(board))))
    assert len(lines) == 8 + 8 + 3
    assert (float(lines[0]["epoch"]), float(lines[0]["m_recall"]), lines[0]["loss"]) == (0.5, 30.0, "lmh")
    lines = csv.DictReader(io.StringIO(curves_to_csv(confirmed)))
    assert {line["seed"]: line["chose"] for line in lines if line["loss"] == "lmh"} == {"0": "True", "1": "False"}


class Page(HTMLParser):
    """Tags with their attributes, and the text of table cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def data_of(page):
    """What the scripts of the page read."""
    return json.loads(page.split('id="board-data">')[1].split("</script>")[0])


def test_the_page_has_what_is_exported_so_that_some_rows_can_be_saved(board):
    data = data_of(to_html(board))
    for kind, render in (("csv", to_csv), ("md", to_markdown), ("tex", to_latex)):
        text, (parts,) = data["texts"][kind], data["texts"][kind]["boards"]
        whole = [text["head"], parts["head"], parts["before_group"], *parts["lines"].values(), parts["tail"]]
        assert "".join(whole) == render(board)
    assert [each["board"] for each in data["boards"]] == [json.loads(to_json(board))]


def rows_of(page):
    """Attributes of the rows of the first table."""
    return [attributes for tag, attributes in Page(page).tags if tag == "tr" and "class" in attributes]


def without_chart_library(page: str) -> str:
    """The page without the one script that is not ours; it names addresses, which the policy of the page forbids."""
    ours = page.replace(vega.chart_library(), "")
    assert len(page) - len(ours) == len(vega.chart_library()), "the library, once"
    return ours


def test_the_page_loads_nothing_and_everything_plotted_has_a_rule_in_its_style(board):
    page = without_chart_library(to_html(board))
    assert "default-src 'none'" in page
    assert re.findall(r"https?://|@import|url\(", page) == []
    for tag, attributes in Page(page).tags:
        assert tag not in {"img", "link", "iframe", "object"}, tag
        assert not {"src", "xlink:href"} & attributes.keys(), (tag, attributes)
        assert attributes.get("href", "#").startswith("#"), (tag, attributes)
    assert drawn_classes.without_rule(page) == set()


def test_the_page_escapes_what_people_wrote(hostile):
    page = without_chart_library(to_html(hostile))
    assert page.count("<img") == 0
    assert page.count("</script>") == 3
    tags = Page(page).tags
    assert not [attributes for _, attributes in tags if any(name.startswith("on") for name in attributes)]
    assert HOSTILE in {attributes.get("data-value") for _, attributes in tags}
    assert HOSTILE in {row["loss"] for row in data_of(page)["rows"].values()}


def test_a_board_without_any_curve_is_still_a_page(attempt):
    board = build([attempt(recalls=[])], baseline="lmh")
    assert "no result yet" in to_html(board)
    assert curve_charts(board) == []
    assert "(a)" in shown(board)


def test_a_curve_is_the_mean_over_the_seeds_that_count_with_the_target_of_the_baseline(attempt, confirmed):
    attempts = [attempt(seed=seed, phase=phase) for seed, phase in ((0, "search"), (1, "confirm"))]
    (chart,) = curve_charts(build(attempts, baseline="lmh"))
    assert chart["target"] == {"value": pytest.approx(60.2), "words": "best of lmh: 60.2"}
    (chart,) = curve_charts(confirmed)
    series = next(series for series in chart["series"] if series["key"].endswith("lmh"))
    assert [point["mean"] for point in series["points"]] == [60.0, 62.0]


def test_a_band_reaches_from_the_lowest_to_the_highest_seed_at_the_epochs_that_all_have():
    points = band("lseh", [[(0.5, 10.0), (1.0, 20.0), (1.5, 30.0)], [(0.5, 20.0), (1.0, 26.0)]])
    assert [[point[name] for name in ("epoch", "low", "mean", "high")] for point in points] == [
        [0.5, 10.0, 15.0, 20.0], [1.0, 20.0, 23.0, 26.0],
    ]
    assert points[1]["words"] == "lseh: M-Recall 23.0 % at epoch 1.00, 2 seeds from 20.0 to 26.0"


def test_heights_have_the_intervals_of_the_board_and_bounds_are_marked(attempt):
    attempts = [attempt("lmh", [40, top, 50], seed=seed) for seed, top in enumerate((60.0, 60.5, 60.2, 60.1, 60.3))]
    attempts += [attempt("lsh", [40, top, 50], seed=seed) for seed, top in enumerate((50.0, 50.1, 50.2, 50.3, 50.4))]
    chart = height_chart(board := build(attempts, baseline="lmh"))
    row = board.rows[1]
    point = chart["points"][1]
    assert (point["y"], point["y_low"], point["y_high"]) == (row.best_m_recall, *row.m_recall_bounds)
    assert point["x"]["target"]["is_bound"]
    assert point["x"]["target"]["high"] is None
    assert chart["front"] == [], "no claim is supported"


@pytest.fixture
def confirmed(attempt):
    """lmh was searched and confirmed, lseh only searched, top_f trained on batches of images."""
    return build(
        [
            attempt("lmh", [1, 2]), attempt("lmh", [70, 71], configuration=1),
            attempt("lmh", [60, 62], configuration=1, seed=1, phase="confirm"),
            attempt("lseh", [1, 2]), attempt("lseh", [50, 51], configuration=1),
            attempt("top_f", [99, 99], batch_unit="images"),
        ],
        baseline="lmh",
    )


def test_bold_is_what_the_data_support_to_be_higher(attempt):
    seeds = [("lmh", (60.0, 60.2, 60.1, 60.4)), ("lseh", (61.0, 61.3, 61.0, 61.5)), ("lsh", (60.1, 60.1, 60.3, 60.2))]
    board = build([attempt(loss, [40, m, 50], seed=n) for loss, ms in seeds for n, m in enumerate(ms)], baseline="lmh")
    console = Console(width=180, file=io.StringIO(), force_terminal=True, color_system="standard", _environ={})
    console.print(render_table(board))
    rows = [line for line in console.file.getvalue().splitlines() if "±" in line and "95 %" not in line]
    assert ["\x1b[1m" in line for line in rows] == [False, True, False]
    lines = [attributes["class"] for attributes in rows_of(to_html(board))]
    assert ["top" in of_line for of_line in lines] == [False, True, False]


def test_losses_keep_their_colour_across_networks(attempt):
    attempts = [attempt("lmh"), attempt("lseh", NEW), attempt("lsh", NEW, network="b"), attempt("lmh", network="b")]
    board = build(attempts, baseline="lmh")
    assert loss_colours(board) == {"lmh": 0, "lseh": 1, "lsh": 2}
    rows = data_of(to_html(board))["rows"].values()
    assert {(row["network"], row["loss"]): row["colour"] for row in rows} == {
        ("vsepp", "lmh"): 0, ("vsepp", "lseh"): 1, ("b", "lmh"): 0, ("b", "lsh"): 2,
    }


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_number_is_cut_off_in_a_narrow_terminal(board, width):
    text = shown(board, width)
    assert "…" not in text
    for word in ("60.2", "61.5", *(["20.0"] if width > 60 else []), *(["> 1.50", "1 pruned"] if width > 100 else [])):
        assert word in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
