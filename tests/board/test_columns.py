"""A column is declared once: what one declaration changes, and what all of them keep to."""

from __future__ import annotations

import csv
import io

import pytest
from board_attempts import NEW
from rich.console import Console

from vsetune.board.building import build
from vsetune.board.columns import COLUMNS, Column, chosen, further_columns
from vsetune.board.export import to_csv, to_latex
from vsetune.board.page import to_html
from vsetune.board.seed_results import CXC, CXC_AMONG, ECCV
from vsetune.board.terminal import render_table

FIRST = Column(
    key="first_m_recall", heading="first\nM-Recall", meaning="M-Recall of the first validation", unit="per cent",
    better="higher", digits=1, value=lambda row: row.seeds[0].curve[0][1] + 0.04 if row.seeds else None,
)


@pytest.fixture
def board(attempt):
    return build([attempt("lmh"), attempt("lseh", NEW), attempt("lsh", [], status="failed")], baseline="lmh")


def printed(board, columns, width):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(render_table(board, columns))
    return console.file.getvalue()


@pytest.fixture
def more():
    return (*COLUMNS, FIRST)


def test_a_declared_column_stands_in_the_terminal(board, more):
    text = printed(board, more, 200)
    assert [line.split()[-1:] for line in text.splitlines()].count(["first"]) == 1
    row = next(line for line in text.splitlines() if "lseh" in line)
    assert row.split()[-1] == "38.0"
    assert ["first"] not in [line.split()[-1:] for line in printed(board, COLUMNS, 200).splitlines()]


@pytest.mark.parametrize(("width", "there", "missing"), [
    (40, ["M-Recall"], ["s/epoch", "to best"]), (60, ["to best"], ["s/epoch"]),
    (80, ["to best", "s/epoch"], ["device-", "level"]), (150, ["s/epoch", "to level", "device-", "trials"], []),
])
def test_a_terminal_has_one_table_of_the_most_important_columns_that_fit(decided, width, there, missing):
    text = printed(decided, COLUMNS, width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert len([line for line in text.splitlines() if line.startswith("───")]) == 1, "one table"
    heading = text.split("on scenes\n")[1].partition("───")[0]
    assert [words for words in (*there, *missing) if words in heading] == there


def test_chosen_columns_are_shown_whatever_the_width_in_every_format(decided):
    keys = ["seed_std", "seeds", "trials"]
    columns = chosen(COLUMNS, keys)
    assert [column.key for column in columns] == ["dataset", "network", "loss", *keys]
    assert csv.DictReader(io.StringIO(to_csv(decided, columns))).fieldnames == [
        "study", "dataset", "network", "loss", *keys,
    ]
    assert "Data & Network & Loss & Seed std & Seeds & Trials" in to_latex(decided, columns)
    for width in (50, 160):
        heading = next(line for line in printed(decided, columns, width).splitlines() if "seed std" in line)
        assert heading.split() == ["loss", "seed", "std", "seeds", "trials"]
    with pytest.raises(ValueError, match="seed_sdt"):
        chosen(COLUMNS, ["seed_sdt"])


def test_a_declared_column_stands_on_the_page_in_csv_and_in_latex(board, more):
    page = to_html(board, more)
    assert 'title="M-Recall of the first validation, in per cent. Higher is better.">first\nM-Recall</button>' in page
    cell = '<td role="cell" class="number result{}" data-label="first M-Recall" data-sort="{}">{}</td>\n      </tr>'
    assert cell.format("", "38.04", "38.0") in page
    assert cell.format(" none", "", "–") in page, "the failed loss has no value"
    lines = list(csv.DictReader(io.StringIO(to_csv(board, more))))
    assert [line["first_m_recall"] for line in lines] == ["30.04", "38.04", ""]
    table = to_latex(board, more)
    assert r"\begin{tabular}{lllrrrrrrrrrr}" in table
    assert r"& Seeds & First M-Recall \\" in table
    assert r"& 0 & -- \\" in table


def test_a_column_of_text_stands_left_and_is_escaped(board):
    hostile = Column(key="word", meaning="A word", kind="text", value=lambda row: "<b>")
    assert r"\begin{tabular}{l}" in to_latex(board, (hostile,))
    assert r"$<$b$>$ \\" in to_latex(board, (hostile,))
    assert 'class="text result" data-label="word" data-sort="&lt;b&gt;">&lt;b&gt;</td>' in to_html(board, (hostile,))


def test_keys_are_unique_and_every_column_has_a_meaning_and_its_value(board):
    keys = ["study", *(column.key for column in COLUMNS)]
    assert len(keys) == len(set(keys)), "of two columns with one key CSV would keep one"
    for column in COLUMNS:
        assert column.meaning, column.key
        assert not column.meaning.endswith("."), column.key
        assert column.views, column.key
        for row in board.rows:
            assert isinstance(column.of(row), str | int | float | None), column.key


def test_the_columns_of_a_further_test_set_are_chosen_by_its_name(attempt):
    scores = {"m_recall": 31.0, "i2t_r1": 11.0, "i2t_r5": 12.0, "i2t_r10": 13.0, "t2i_r1": 14.0, "t2i_r5": 15.0,
              "t2i_r10": 16.0, "rsum": 81.0}
    board = build([
        attempt(loss, seed=seed, phase="confirm", summary={f"test.coco.{key}": value + seed for key, value in known})
        for loss, known in (("lmh", scores.items()), ("lseh", [("m_recall", 50.0)])) for seed in (1, 3)
    ], baseline="lmh")
    further = further_columns([{"data": {"tests": {"coco": {}}}}])
    columns = chosen(COLUMNS, ["test.coco", "best_m_recall"], further)
    lines = {line["loss"]: line for line in csv.DictReader(io.StringIO(to_csv(board, columns)))}
    assert {key: lines["lmh"][f"test.coco.{key}"] for key in scores} == {
        key: str(value + 2) for key, value in scores.items()
    }
    assert (lines["lseh"]["test.coco.m_recall"], lines["lseh"]["test.coco.rsum"]) == ("52.0", "")
    assert [column.key for column in chosen(COLUMNS, ["test.coco.rsum"], further)][-1] == "test.coco.rsum"
    for text in (printed(board, columns, 160), to_latex(board, columns), to_html(board, columns=columns)):
        assert "83.0" in text
    with pytest.raises(ValueError, match=r"test\.coco\.r1"):
        chosen(COLUMNS, ["test.coco.r1"], further)


def test_scores_by_published_judgements_are_chosen_where_a_trial_asks_for_them(attempt):
    names = [f"test_{name}" for name in (*ECCV, *CXC, *CXC_AMONG)]
    board = build([
        attempt("lmh", seed=seed, phase="confirm", summary={name: place + seed for place, name in enumerate(names)})
        for seed in (1, 3)
    ], baseline="lmh")
    asked = {"evaluation": {"coco": {"captions": "dataset_coco.json", "eccv_caption": "eccv", "cxc": "cxc"}}}
    columns = chosen(COLUMNS, ["test_eccv", "test_cxc"], further_columns([{}, asked]))
    (line,) = csv.DictReader(io.StringIO(to_csv(board, columns)))
    assert {name: line[name] for name in names} == {name: str(place + 2.0) for place, name in enumerate(names)}
    assert "mAP@R" in printed(board, columns, 400)
    only_across = {"evaluation": {"coco": {"captions": "dataset_coco.json", "cxc": "sits_test.csv"}}}
    assert len(further_columns([only_across])["test_cxc"]) == 6
    only_eccv = {"evaluation": {"coco": {"captions": "dataset_coco.json", "eccv_caption": "eccv"}}}
    with pytest.raises(ValueError, match="test_cxc"):
        chosen(COLUMNS, ["test_cxc"], further_columns([only_eccv, {"evaluation": {}}]))
