"""Several studies as one page, as files, and as a picture of profiles: side by side where they compare, never mixed."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from vsetune.board.charts import curve_charts, height_chart, negatives_charts, seconds_chart
from vsetune.board.export import curves_to_csv, to_json
from vsetune.board.many_studies import build_many
from vsetune.board.page import to_html, to_update
from vsetune.board.rows import Boards


@pytest.fixture
def found(several) -> Boards:
    return build_many(several)


def test_what_does_not_compare_is_in_no_chart_of_the_others(found):
    first = found.boards[0]
    assert [row.loss for row in first.rows if row.not_comparable] == ["top_f"]
    drawn = [series["key"].split("\t")[2] for chart in curve_charts(first) for series in chart["series"]]
    drawn += [point["key"].split("\t")[2] for point in (*height_chart(first)["points"], *seconds_chart(first))]
    curves = {(row.study, seed.trial): seed.curve for row in first.rows for seed in row.seeds}
    measured = {trial: {"unique_negatives_images": curve} for trial, curve in curves.items()}
    drawn += [line["key"].split("\t")[2] for chart in negatives_charts(first, measured) for line in chart["series"]]
    assert drawn
    assert "top_f" not in drawn


def test_an_update_brings_every_part_that_the_page_has_a_place_for_and_keys_tell_boards_apart(found):
    update = json.loads(to_update(found))
    parts, rows = update["parts"], update["data"]["rows"]
    assert set(parts) == set(re.findall(r'data-part="(.*?)"', to_html(found).partition("</main>")[0]))
    assert list(parts).index("boards") < list(parts).index("lead 0")
    assert "<td" not in parts["boards"], "tables come by themselves, so that one that stays is left alone"
    assert len(rows) == sum(len(board.rows) for board in found.boards)
    one, other = rows["scenes\tvsepp\tlmh"], rows["scenes\tvsepp\tlmh\t2"]
    assert (one["study"], other["study"], one["group"] == other["group"]) == ("first", "second", False)


def test_json_and_curves_have_every_board_and_what_is_said_across_them(found):
    plain = json.loads(to_json(found))
    assert [board["number"] for board in plain["boards"]] == [1, 2, 1]
    assert plain["notes"] == list(found.notes)
    curves = list(csv.DictReader(io.StringIO(curves_to_csv(found))))
    assert {line["study"] for line in curves} == {"first", "second", "third", "first_flickr"}
