"""What a study runs next, by the rules in the order in which they apply. It changes nothing."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Literal

from vsetune.study.cell_search import CellSearch
from vsetune.study.trials import PlannedTrial


def next_trial(
    cells: Sequence[CellSearch], waiting: Sequence[PlannedTrial], *, now: float, places: int,
    fitting: Container[str] | None = None,
) -> PlannedTrial | CellSearch | Literal["wait", "done"]:
    """The trial that runs next, or the cell that needs a new configuration for it. "wait": none can start now; "done":
    none is left.

    waiting: trials to hand out again, in the order in which they were interrupted. places: trials that the cluster has
    room for at a time. fitting: names of cells whose trials fit a node; None for all. The trials of the others wait.
    """
    here = [cell for cell in cells if fitting is None or cell.name in fitting]

    # 1. An interrupted trial whose pause is over, the one that was interrupted first.
    for trial in waiting:
        if trial.not_before <= now and (fitting is None or trial.cell in fitting):
            return trial

    # 2. The first configuration of each cell, so that a board can compare all losses early.
    places_of_cell = places // max(1, sum(not cell.is_over for cell in cells))
    asking = [cell for cell in here if cell.may_ask(places_of_cell)]
    for cell in asking:
        if not cell.searched:
            return cell

    # 3. Confirmations of cells whose search is over.
    for cell in here:
        for trial in cell.unconfirmed:
            return trial

    # 4. A new configuration for the cell with the fewest epochs committed.
    if asking:
        return min(asking, key=lambda cell: cell.committed)

    # 5. Nothing now: trials run or pause, or a cell whose trials fit no node has more.
    return "wait" if any(cell.is_running_or_pausing or cell.has_more for cell in cells) else "done"
