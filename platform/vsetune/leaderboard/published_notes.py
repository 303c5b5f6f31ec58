"""What papers print of the losses, networks and data sets of a board, in sentences that nobody takes for ours."""

from __future__ import annotations

from collections.abc import Sequence

from vsetune.leaderboard.paper_table import (
    PaperColumn,
    PaperTable,
    paper_table,
    plain_name,
    printed_words,
    table_names,
)
from vsetune.leaderboard.rows import Leaderboard, Row


def published_notes(board: Leaderboard) -> list[str]:
    """A line for each table and group that have a cell in common; of a table with all recalls their means alone."""
    tables = [table for table in map(paper_table, table_names()) if table.beside_boards]
    return [
        note for dataset, network, rows in board.groups() for table in tables
        for note in _notes(table, dataset, network, rows)
    ]


def _notes(table: PaperTable, dataset: str, network: str, rows: Sequence[Row]) -> list[str]:
    word = next((word for word, begins in table.data.items() if plain_name(dataset).startswith(begins)), None)
    printed_as = next((name for name, ours in table.networks.items() if ours == network), None)
    if word is None or printed_as is None:
        return []
    shown = {row.loss for row in rows}
    told = [
        f"{loss or column.loss} {_named(column)} {printed_words(values, column)}"
        for loss in table.rows_of_losses or ("",) for column in table.columns
        if _is_shown(table, column, loss, shown)
        and (values := table.printed(word, printed_as, loss or column.loss, column)) is not None
    ]
    if not told:
        return []
    split = {"val": "validation split", "test": "test split"}.get(table.split, table.split)
    where = f"{table.source}, {printed_as} on {word}, {split}"
    return [f"† Published, not measured here ({where}; other features and tuning): {'; '.join(told)}."]


def _is_shown(table: PaperTable, column: PaperColumn, loss: str, shown: set[str]) -> bool:
    words = [word for word in (loss or column.loss, column.against) if word]
    is_told = column.quantity == "mean_and_spread" if loss else True
    return is_told and all(table.losses[word] in shown for word in words)


def _named(column: PaperColumn) -> str:
    """Without the name of the loss, which stands before it, and with that of the other one."""
    if not column.loss:
        return f"{column.group} {column.heading}"
    heading = column.heading.removesuffix(f" {column.loss}")
    return heading if column.against in ("", column.loss) else f"{heading} (against {column.against})"
