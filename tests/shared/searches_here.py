"""A search without a study: its trials end as a test says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from optuna.trial import FrozenTrial

from vsetune.config.study.cells import Cell
from vsetune.config.study.study_spec import SearchSpec
from vsetune.records.events import AttemptStatus, Drawn
from vsetune.records.state import Attempt
from vsetune.records.writer import StudyWriter
from vsetune.search.configurations import ConfigurationSearch, Refusal
from vsetune.search.objectives import BEST_M_RECALL, Objective
from vsetune.search.trial_history import DRAWN_BY, TrialHistory


class SearchHere:
    """writer: has what earlier processes sampled, and then what this one does."""

    def __init__(
        self, cells: Sequence[Cell], spec: SearchSpec, writer: StudyWriter | None = None, *,
        refuses: Refusal | None = None, objective: Objective = BEST_M_RECALL,
    ) -> None:
        self.search = ConfigurationSearch(cells, spec, writer or StudyWriter(), refuses=refuses)
        self._ended: defaultdict[str, dict[int, Attempt]] = defaultdict(dict)
        self._objective = objective

    def ask(self, cell: str) -> Drawn | None:
        """The next configuration, without its time, which no two searches share."""
        drawn = self.search.ask(cell, self._history(cell))
        return None if drawn is None else replace(drawn, at=0.0)

    def end(self, cell: str, number: int, status: AttemptStatus, curve: Sequence[tuple[float, float]]) -> None:
        no_start: Any = None
        self._ended[cell][number] = Attempt("", no_start, status, tuple(curve), {})

    def suggested(self, cell: str) -> list[Drawn]:
        """What was not refused."""
        return [replace(each, at=0.0) for each in self.search.drawn(cell) if each.state == "running"]

    def trials(self, cell: str) -> list[FrozenTrial]:
        """As samplers see them."""
        return list(self._history(cell))

    def _history(self, cell: str) -> TrialHistory:
        return self.search.history(cell, self._objective, self._ended[cell])


def sampled_by(drawn: Drawn | None) -> str:
    assert drawn is not None
    return str(drawn.attributes[DRAWN_BY])
