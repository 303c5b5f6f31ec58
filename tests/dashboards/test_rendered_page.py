"""The page shows what Prometheus answered, says what is empty, and asks for nothing from anywhere."""

from __future__ import annotations

import http.server
import itertools
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from local_http import answering
from PIL import Image

from vsetune.board.vega import LIGHT
from watching.answers import Answer, Span, ask_all, table
from watching.drawing import MOST_LINES, MOST_NAMES, SHARED_COLOURS, Line, drawing_of, in_words, spec_of
from watching.page import to_html
from watching.panels import BOARDS, STUDY, TRIAL, WHY_EMPTY, every_panel, filled
from watching.prometheus_api import Curve, PrometheusError, Server

SPAN = Span(0.0, 1000.0, 10.0)


def answer(title: str, curves: list[Curve]) -> Answer:
    board, panel = next((board, panel) for board, panel in every_panel() if panel.title == title)
    return Answer(board, panel, filled(panel.expr), curves)


def curve(trial: str, *points: tuple[float, float]) -> Curve:
    return Curve({"trial": trial, "study": "<s>"}, points)


class Answering(http.server.BaseHTTPRequestHandler):
    """Prometheus' API for one made-up series; it refuses queries with `nonsense`."""

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)["query"][0]
        result = [{"metric": {"study": "s"}, "values": [[0, "1"], [10, "NaN"], [20, "3"]]}]
        body = json.dumps({"data": {"result": result}}).encode()
        self.send_response(400 if "nonsense" in query else 200)
        self.end_headers()
        self.wfile.write(b"parse error" if "nonsense" in query else body)

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with answering(Answering) as url:
        yield Server(url)


def test_every_panel_is_asked_and_values_that_are_not_finite_are_left_out(server: Server) -> None:
    answers = ask_all(server, SPAN)
    assert len(answers) == len(list(every_panel()))
    assert answers[0].curves == [Curve({"study": "s"}, [(0.0, 1.0), (20.0, 3.0)])]
    assert table(answers).count("\n") == len(answers) + 1


def test_a_refused_query_and_a_server_that_is_away_are_told_in_one_line(server: Server) -> None:
    with pytest.raises(PrometheusError, match=r"refused \(parse error\); query: nonsense"):
        server.over_time("nonsense", start=0, end=1, step_s=1)
    with pytest.raises(PrometheusError, match="make dashboards"):
        Server("http://127.0.0.1:1").over_time("up", start=0, end=1, step_s=1)


def test_a_gap_breaks_the_line_and_a_point_alone_is_a_dot() -> None:
    points = curve("t", (0, 1), (10, 2), (500, 3), (900, 4), (910, 5))
    values = spec_of([(Line("t", 0, False, "5"), points)], "number", SPAN)["data"]["values"]
    assert [value["stretch"] for value in values] == ["0 0", "0 0", "0 1", "0 2", "0 2"]
    assert [value["is_alone"] for value in values] == [False, False, True, False, False]


def test_many_curves_are_counted_and_no_two_have_one_colour() -> None:
    curves = [Curve({"trial": f"t{n}", "study": study}, ((0, n), (10, n))) for n in range(20) for study in "ab"]
    drawn = drawing_of(answer("Epoch", curves), SPAN)
    assert [line.name for line in drawn.named] == [f"t{19 - n // 2}" for n in range(MOST_NAMES)]
    assert drawn.more == 40 - MOST_NAMES
    assert len({line.colour for line in drawn.named}) == MOST_NAMES
    assert len(set(re.findall(r'stroke="var\(--(c\d+)\)"', drawn.chart))) == MOST_LINES >= 12


def test_a_cell_has_one_colour_in_every_panel() -> None:
    cells = [f"vsepp.{loss}" for loss in ("lmh", "lseh", "info_nce", "dcl")]
    panels = {
        title: [Curve({"cell": cell, "study": "s"}, ((0, n), (10, n))) for n, cell in enumerate(order)]
        for title, order in (("Best M-Recall", cells), ("Epochs charged", cells[::-1]))
    }
    best, epochs = (drawing_of(answer(title, curves), SPAN).named for title, curves in panels.items())
    assert {line.name: line.colour for line in best} == {line.name: line.colour for line in epochs}
    assert [line.name for line in best] != [line.name for line in epochs]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_any_two_colours_of_lines_look_different(theme: int) -> None:
    """By the distance in CIELAB, of which about 2 can just be seen beside each other."""
    page = to_html([], SPAN, source="http://127.0.0.1:9090")
    pairs = dict(re.findall(r"--c(\d+): light-dark\((#\w{6}, #\w{6})\)", page))
    colours = [in_cielab(pairs[str(index)].split(", ")[theme]) for index in range(MOST_LINES)]
    assert min(math.dist(one, other) for one, other in itertools.combinations(colours, 2)) > 20


def test_the_picture_in_the_docs_has_the_colours_of_the_page() -> None:
    """A picture with fewer colours than the page, as tools make them smaller, gives two losses one colour."""
    picture = Image.open(Path(__file__).parents[2] / "docs" / "dashboards.png").convert("RGB")
    pixels = {colour: count for count, colour in picture.getcolors(picture.width * picture.height)}
    lines = [tuple(bytes.fromhex(LIGHT[f"c{index}"][1:])) for index in range(SHARED_COLOURS)]
    assert [pixels.get(colour, 0) > 100 for colour in lines] == [True] * SHARED_COLOURS


def in_cielab(colour: str) -> tuple[float, float, float]:
    shares = (int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    white = (0.9505, 1.0, 1.089)
    x, y, z = (
        amount / most for amount, most in zip((
            0.4124 * red + 0.3576 * green + 0.1805 * blue, 0.2126 * red + 0.7152 * green + 0.0722 * blue,
            0.0193 * red + 0.1192 * green + 0.9505 * blue,
        ), white, strict=True)
    )
    x, y, z = (each ** (1 / 3) if each > 0.008856 else 7.787 * each + 16 / 116 for each in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def test_a_series_that_ended_is_named_last_and_shows_no_value() -> None:
    drawn = drawing_of(answer("Epoch", [curve("old", (0, 9), (10, 9)), curve("new", (980, 1), (990, 2))]), SPAN)
    assert [(line.name, line.last) for line in drawn.named] == [("new", "2"), ("old", "ended")]


def test_the_page_escapes_names_says_what_is_empty_and_loads_nothing() -> None:
    full = {"Epoch": [curve("<b>", (0, 1), (10, 2))], "Done": [curve("t", (1000, 0.5))]}
    answers = [answer(panel.title, full.get(panel.title, [])) for board in (STUDY, TRIAL) for panel in board.panels]
    page = to_html(answers, SPAN, source="http://127.0.0.1:9090")
    assert "<b>" not in re.sub(r"<b>(50 %|–)</b>", "", page)
    assert "&lt;b&gt;" in page
    assert all(why in page for why in ("nothing yet", WHY_EMPTY["price"], WHY_EMPTY["validation"]))
    assert not re.findall(r"(?:src|href)=|@import|url\(", page)
    assert all(board.title in page for board in BOARDS)


@pytest.mark.parametrize(("value", "unit", "words"), [
    (0.1234, "share", "12.3 %"), (3 * 2**30, "bytes", "3 GiB"), (1536, "bytes/s", "1.5 KiB/s"),
    (90, "seconds", "1.5 min"), (7200, "seconds", "2 h"), (12345, "pairs/s", "12,345"), (0.53, "USD/h", "$0.53"),
    (0, "number", "0"),
])
def test_values_are_written_as_people_read_them(value: float, unit: str, words: str) -> None:
    assert in_words(value, unit) == words  # type: ignore
