"""Objectives of a study's cells, and their targets, which may depend on the baseline's search."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

from vsetune.config.study.cells import Cell, repeat_name
from vsetune.config.study.study_spec import StudySpec
from vsetune.metrics.curves import best_of_curve
from vsetune.records.events import CONSTRAINT_EXCESS, SEARCH_VALUE
from vsetune.report.selection import winner_of
from vsetune.search.objectives import Objective, share_above_limit
from vsetune.study.trials import PlannedTrial

_log = logging.getLogger(__name__)


def target_cell(study: StudySpec, cell: Cell, cells: Container[str]) -> str | None:
    """The cell whose best M-Recall is the target of this one, the same repeat of the baseline; None if it needs no such
    target. cells: names of all."""
    is_needed = study.search.objective == "epochs_to_target" and isinstance(study.search.target, str)
    if not is_needed or cell.loss_name == study.baseline:
        return None
    first = f"{cell.network_name}.{study.baseline}"
    own = repeat_name(first, cell.repeat)
    return own if own in cells else first


class CellGoals:
    """The objective of every cell. A target that is the baseline's best is known once the search of the baseline's cell
    on the same network is over: it is the best M-Recall of that cell's winner with the search seed. The baseline's cell
    itself is searched for M-Recall, as are cells whose baseline has no finished winner."""

    def __init__(
        self, study: StudySpec, cells: Mapping[str, Cell], *, searched: Callable[[Cell], Sequence[PlannedTrial] | None]
    ) -> None:
        """searched: gives the trials of a cell's search, None while it is not over."""
        self._study, self._cells, self._searched = study, cells, searched
        self._known: dict[str, Objective] = {}

    def objective(self, cell: Cell) -> Objective | None:
        """The objective of a cell; None while its target is unknown, during which the cell cannot be searched."""
        if cell.name not in self._known:
            found = self._objective(cell)
            if found is None:
                return None
            self._known[cell.name] = found
        return self._known[cell.name]

    def target(self, cell: str) -> float | None:
        """The M-Recall, in per cent, at which a trial of the cell's search stops; None without a target."""
        known = self.objective(self._cells[cell])
        return known.target if known is not None else None

    def numbers(self, planned: PlannedTrial, summary: Mapping[str, float]) -> dict[str, float]:
        """Numbers of a search trial that are stored with its summary: the value of its objective, unless that is the
        best M-Recall, and by how much it breaks a constraint."""
        objective = self.objective(self._cells[planned.cell])
        found: dict[str, float] = {}
        if objective is not None and objective.kind != "best_m_recall" and planned.curve:
            found[SEARCH_VALUE] = objective.value(planned.curve)
        if self._study.search.constraints.given:
            found[CONSTRAINT_EXCESS] = share_above_limit(self._study.search.constraints, summary)
        return found

    def _objective(self, cell: Cell) -> Objective | None:
        search, whole = self._study.search, float(cell.training["epochs"])
        plain = Objective(search.objective if cell.is_trained else "best_m_recall", whole)
        if not cell.is_trained or search.objective != "epochs_to_target":
            return plain
        if not isinstance(search.target, str):
            return replace(plain, target=search.target)
        name = target_cell(self._study, cell, self._cells)
        if name is None:
            return Objective("best_m_recall", whole)
        baseline = self._cells[name]
        searched = self._searched(baseline)
        if searched is None:
            return None
        winner = winner_of([trial.attempts for trial in searched if trial.attempts])
        if winner is None or winner.status != "finished":
            _log.warning(
                "cell %s: nothing of the baseline %s has finished, so there is no target; it is searched for the best "
                "M-Recall", cell.name, baseline.name,
            )
            return Objective("best_m_recall", whole)
        return replace(plain, target=best_of_curve(winner.curve).m_recall)
