"""Tables of papers, filled: every published value is in its place, every empty cell of ours has its reason."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from board_attempts import BASELINE, NEW
from refusals import refused
from rich.console import Console
from syrupy.extensions.single_file import SingleFileSnapshotExtension

from vsetune.board.board_notes import notes
from vsetune.board.building import build
from vsetune.board.many_studies import StudyAttempts
from vsetune.board.paper_table import paper_table, published_values, table_names
from vsetune.board.table_filling import fill, renamed
from vsetune.board.table_formats import FORMATS, TableView
from vsetune.errors import UsageError

SCORES = {f"test_{way}_r{k}": value for way in ("i2t", "t2i") for k, value in ((1, 40.0), (5, 60.0), (10, 74.0))}


@pytest.fixture
def runs(attempt):
    """LMH and LSEH over two seeds with two networks on Flickr30K, LMH alone with a third; nothing of LMH2."""
    cells = [("vsepp", "lmh"), ("vsepp", "lseh"), ("vsrn", "lmh"), ("vsrn", "lseh"), ("sgraf_saf", "lmh")]
    return StudyAttempts("mine", "lmh", [
        replace(made, start=replace(made.start, study="mine"))
        for network, loss in cells for seed in (1, 2)
        for made in [attempt(
            loss, NEW if loss == "lseh" else BASELINE, seed=seed, network=network,
            phase="confirm", dataset="flickr30k", summary=SCORES if seed == 1 or network == "vsepp" else {},
        )]
    ])


def lines_of(filled, data="Flickr30K"):
    (block,) = [block for block in filled.blocks if block.data == data]
    return {(*line.names, line.source): line for line in block.lines}


@pytest.mark.parametrize("name", table_names())
def test_every_value_that_the_paper_prints_in_the_table_stands_in_a_published_line(name, runs):
    table = paper_table(name)
    printed = sorted(
        float(value) for key, value in published_values(table.published).items()
        if key[0] == table.table and key[2] == table.split
    )
    filled = fill(table, [runs])
    shown = [
        value for block in filled.blocks for line in block.lines if line.source == "published" for cell in line.cells
        for value in cell.values
    ]
    assert sorted(shown) == printed
    assert len(printed) > 15 or any("not at hand" in note for note in filled.notes)


def test_what_was_not_measured_says_why(runs):
    recalls = lines_of(fill(paper_table("lseh_table4"), [runs]))
    assert recalls["VSRN", "LMH2", "measured"].cells[0].notes == ("LMH2: no run of lmh2 with vsrn on flickr30k",)
    assert recalls["VSRN", "LSEH", "measured"].cells[0].notes == (
        "lseh of vsrn: 1 of 2 seeds have no i2t_r1 of the test split, or by several encoders",
    )


def test_table_4_of_lseh_has_the_recalls_of_the_test_split_and_their_spread_over_k(runs):
    """40, 60 and 74: mean 58, population deviation sqrt((18² + 2² + 16²) / 3) = 13.95."""
    cells = lines_of(fill(paper_table("lseh_table4"), [runs]))["VSE++", "LMH1", "measured"].cells
    assert [cell.words for cell in cells[:4]] == ["40.0", "60.0", "74.0", "58.0 (±14.0)"]
    assert cells[3].values == pytest.approx((58, (584 / 3) ** 0.5))


def test_other_protocols_and_a_baseline_without_its_target_are_not_put_beside(attempt):
    made = [
        attempt("lmh", [30, 40, 50, 60], dataset="flickr30k"), attempt("lseh", NEW[:4], dataset="flickr30k"),
        attempt("top_f", NEW[:4], dataset="flickr30k", batch_size=7),
    ]
    table = renamed(paper_table("lseh_table3"), {"LMH2": "top_f"})
    cells = lines_of(fill(table, [StudyAttempts("demo", "lmh", made)]))["VSE++", "measured"].cells
    assert "was still improving" in " ".join(cells[3].notes)
    assert not cells[3].counts, "it enters no average"
    assert cells[7].values == ()
    assert "batch_size" in " ".join(cells[7].notes)


def test_beside_a_collapsed_baseline_a_paper_table_has_no_difference_and_says_why(attempt):
    made = [attempt("lmh", [14.9, 14.2], dataset="flickr30k"), attempt("lseh", NEW, dataset="flickr30k")]
    cells = lines_of(fill(paper_table("lseh_table3"), [StudyAttempts("demo", "lmh", made)]))["VSE++", "measured"].cells
    assert [cell.words for cell in cells[2:4]] == ["–", "–"]
    assert cells[3].notes == (
        "vsepp: the baseline collapsed: its best M-Recall is 14.9 %, less than half of the 61.5 % of lseh",
    )


def test_srd_by_one_encoder_is_told_from_srd_by_several(attempt):
    one, two = {"test_srd_5_minilm": 120.0, "test_srd_share_5_minilm": 0.1}, {"test_srd_5_other": 80.0}
    table = paper_table("zhang_table3")
    for summary, words in ((one, "120.0"), (one | two, "–")):
        made = [attempt("lmh", dataset="flickr30k", summary=summary)]
        cells = lines_of(fill(table, [StudyAttempts("demo", "lmh", made)]))["VSE++", "original", "measured"].cells
        assert cells[1].words == words


def test_a_board_of_the_papers_losses_networks_and_data_quotes_what_they_print(runs, attempt, snapshot):
    quotes = [note for note in notes(build(runs.attempts, baseline="lmh")) if note.startswith("†")]
    assert (len(quotes), quotes[:2]) == (6, snapshot), "two for each network"
    assert not [note for note in notes(build([attempt("lmh"), attempt("lseh")], baseline="lmh")) if "†" in note]


def test_names_of_ours_are_given_by_the_papers_words(runs):
    table = renamed(paper_table("lseh_table3"), {"LMH2": "lmh", "MS-COCO": "Flickr30k", "Flickr30K": "elsewhere"})
    filled = fill(table, [runs])
    assert lines_of(filled, "MS-COCO")["VSE++", "measured"].cells[4].words == "60.2"
    titles = [block.title for block in filled.blocks]
    assert titles == ["Flickr30K", "MS-COCO (measured on flickr30k)", "IAPR TC-12"], "nothing passes for MS-COCO"
    with refused("VSE-B007", by=UsageError, kind="word of lseh_table3", name="LMH3"):
        renamed(table, {"LMH3": "lmh"})
    with refused("VSE-B008", by=UsageError, word="MS-COCO", name="--"):
        renamed(table, {"MS-COCO": "--"})
    with refused("VSE-B007", by=UsageError, kind="table", name="lseh_table"):
        paper_table("lseh_table")


@pytest.mark.parametrize("width", [80, 100, 300])
@pytest.mark.parametrize("name", table_names())
def test_no_number_and_no_heading_of_a_table_is_cut_in_a_terminal(runs, name, width):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    filled = fill(paper_table(name), [runs])
    console.print(TableView(filled))
    text = console.file.getvalue()
    words = [cell.words for block in filled.blocks for line in block.lines for cell in line.cells]
    assert words
    assert [word for word in words if word not in text] == []
    assert "…" not in text


@pytest.mark.parametrize("form", FORMATS)
def test_a_table_is_written_as_recorded(runs, form, snapshot):
    assert FORMATS[form](fill(paper_table("lseh_table3"), [runs])).encode() == snapshot(
        extension_class=SingleFileSnapshotExtension
    )
