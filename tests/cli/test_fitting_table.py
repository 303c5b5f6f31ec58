"""Tables at every width of a terminal: each word is there whole, under its heading."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column

from vsetune.cli.output import FittingTable

NAMES = ["vsepp.lmh-c000-s0", "vse_infinity.info_nce-c002-s0"]
WHY = "asha: 24.2 % at epoch 2, needs 38.2 % (1 earlier trial)"
COLUMNS = [
    "trial", "is", Column("epoch", justify="right"), Column("best\nM-Recall", justify="right"), "cost", "where",
    "last sign", Column("because", overflow="fold"),
]
ROWS = [[NAMES[0], "pruned", "2.00 of 4", "24.20", "", "127.0.0.1", "46 min ago", WHY],
        [NAMES[1], "finished", "4.00 of 4", "68.21", "", "127.0.0.1", "38 min ago", ""]]


def shown(width: int, *, title: str = "") -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width).print(FittingTable(COLUMNS, ROWS, title=title))
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("width", [*range(40, 130, 3), 200])
def test_nothing_is_cut_and_no_line_is_too_long(width) -> None:
    lines = shown(width)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    cells = {word for row in [*ROWS, ["trial", "is", "epoch", "M-Recall", "where", "because"]] for each in row
             for word in each.split()}
    assert cells <= set(words)


def test_columns_go_on_below_beside_the_names_once_more() -> None:
    wide, narrow = shown(200), shown(80)
    assert [sum(name in line for line in wide) for name in NAMES] == [1, 1]
    assert [sum(name in line for line in narrow) for name in NAMES] == [2, 2]


def test_a_column_without_words_is_left_out() -> None:
    assert not any("cost" in line for line in shown(200))


def test_a_name_wider_than_the_terminal_is_broken_and_not_cut() -> None:
    stream = io.StringIO()
    Console(file=stream, width=20).print(FittingTable(["trial", "is"], [[NAMES[1], "open"]]))
    assert NAMES[1] in "".join(line.split("  ")[0].strip() for line in stream.getvalue().splitlines()[2:])


@pytest.mark.parametrize("name", ["n" * 100, "名" * 50])
def test_one_long_name_does_not_give_every_column_a_table_of_its_own(name) -> None:
    stream = io.StringIO()
    rows = [["short", *ROWS[0][1:]], [name, *ROWS[1][1:]]]
    Console(file=stream, width=80).print(FittingTable(COLUMNS, rows))
    lines = stream.getvalue().splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert sum(line.startswith("short") for line in lines) == 3
    assert "".join(line.split(" ")[0] for line in lines if line[:1] == name[0]) == 3 * name


def test_what_people_wrote_is_shown_as_it_is() -> None:
    stream = io.StringIO()
    Console(file=stream, width=60).print(FittingTable(["study"], [["[bold]x"]], title="[red]y"))
    assert {"[bold]x", "[red]y"} <= set(stream.getvalue().split())
