"""Whether a space is smaller than the budget of its search."""

from __future__ import annotations

from vsetune.config.study.cells import Cell
from vsetune.config.study.study_spec import SearchSpec
from vsetune.search.finite_spaces import configurations_in


def gaps_of(search: SearchSpec, cell: Cell) -> str:
    """That the space of a cell is smaller than the budget, in one line; else empty."""
    if not cell.domains:
        return ""
    size = configurations_in(cell)
    if size is None or size >= search.configurations:
        return ""
    return (
        f"search: cell {cell.name}: the space has {size} configurations and the budget {search.configurations} whole "
        f"trainings: the search ends early; search more, or lower search.configurations to {size}"
    )
