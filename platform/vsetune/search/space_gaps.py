"""What the budget of a search leaves uncovered in a small space."""

from __future__ import annotations

from vsetune.config.study.cells import Cell
from vsetune.config.study.study_spec import SearchSpec
from vsetune.search.finite_spaces import configurations_in


def gaps_of(search: SearchSpec, cell: Cell) -> str:
    """Why a grid does not cover the space of a cell, or that the space is smaller than the budget, in one line; else
    empty."""
    if not cell.domains:
        return ""
    size, gaps = configurations_in(cell), ""
    if size is not None and size < search.configurations:
        gaps = (
            f"the space has {size} configurations and the budget {search.configurations} whole trainings: "
            f"the search ends early; search more, or lower search.configurations to {size}"
        )
    elif search.sampler == "grid":
        from vsetune.search.drawing import CellDrawing  # loads Optuna, which checks of other studies do without

        gaps = CellDrawing(search, cell).uncovered()
    return gaps and f"search: cell {cell.name}: {gaps}"
