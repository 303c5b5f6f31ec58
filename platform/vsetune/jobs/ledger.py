"""Which trial runs next and what has happened so far. Knows nothing of Ray.

The tracking store is the truth about attempts, the configuration search the truth about what was asked. Everything
here is a copy that `StudyLedger` rebuilds from the two when a study is resumed, so a killed driver loses nothing:
a finished attempt is written to the store before the search is told of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from vsetune.config.cells import Cell, Configuration, build_trial
from vsetune.config.study import StudySpec
from vsetune.config.training import TrialSpec
from vsetune.search.configurations import ConfigurationSearch, Outcome, Suggestion
from vsetune.tracking.records import AttemptRecord, AttemptStart, AttemptStatus, ValidationPoint
from vsetune.tracking.store import TrackingStore

Phase = Literal["search", "confirm"]
TERMINAL: tuple[AttemptStatus, ...] = ("finished", "pruned", "failed")


@dataclass(frozen=True)
class Assignment:
    """A trial to run. number: the configuration's number in its cell."""

    trial: TrialSpec
    number: int
    phase: Phase
    configuration: Configuration


@dataclass
class TrialProgress:
    """What the ledger knows about one trial. charged_*: over all of its attempts, replayed work included."""

    assignment: Assignment
    status: AttemptStatus | Literal["waiting"] = "waiting"
    attempt_id: str | None = None
    attempt_number: int = 0
    epoch: float = 0.0
    best_m_recall: float | None = None
    charged_epochs: float = 0.0
    charged_device_seconds: float = 0.0
    curve: list[tuple[float, float]] = field(default_factory=list)
    error: str | None = None

    @property
    def is_closed(self) -> bool:
        return self.status in TERMINAL

    def charge(self, summary: Mapping[str, float]) -> None:
        """Takes the cost from the latest attempt: it counts from the start of the trial, and waste accumulates."""
        self.charged_epochs = summary.get("epochs", self.epoch) + summary.get("wasted_epochs", 0.0)
        self.charged_device_seconds = summary.get("device_seconds", self.charged_device_seconds)


class StudyLedger:
    """The trials of one study: handed out, recorded, closed. One process per study may hold one."""

    def __init__(
        self, study: StudySpec, cells: Sequence[Cell], store: TrackingStore, search: ConfigurationSearch
    ) -> None:
        self.study = study
        self.cells = {cell.name: cell for cell in cells}
        self._store, self._search = store, search
        self.trials: dict[str, TrialProgress] = {}
        self._requeued: list[str] = []

    def recover(self, *, retry_failed: bool = False) -> None:
        """Rebuilds the ledger from the store and the search after an earlier process ended.

        The trial of a killed attempt is handed out again (it goes on from its checkpoint). Outcomes the search has
        not heard of are told now.
        """
        by_trial: dict[str, list[AttemptRecord]] = {}
        for record in self._store.attempts(self.study.study):
            by_trial.setdefault(record.start.trial, []).append(record)
        for cell in self.cells.values():
            for suggestion in self._search.suggestions(cell.name):
                self._recover_trial(self._search_assignment(cell, suggestion), by_trial, retry_failed=retry_failed)
                self._tell(self._search_id(cell, suggestion.number))
        for cell in self.cells.values():
            for assignment in self._confirm_assignments(cell):
                if assignment.trial.trial in by_trial:
                    self._recover_trial(assignment, by_trial, retry_failed=retry_failed)

    def next(self) -> Assignment | Literal["wait", "done"]:
        """The next trial: interrupted ones first, then the cell with the fewest configurations, then confirmations."""
        if self._requeued:
            return self.trials[self._requeued.pop(0)].assignment
        cell = self._cell_to_search()
        if cell is not None:
            return self._add(self._search_assignment(cell, self._search.ask(cell.name)))
        for cell in self.cells.values():
            for assignment in self._confirm_assignments(cell):
                if assignment.trial.trial not in self.trials:
                    return self._add(assignment)
        return "done" if all(trial.is_closed for trial in self.trials.values()) else "wait"

    def has_work(self) -> bool:
        """Whether a trial is unfinished or still to be asked for. Asks for nothing."""
        if self._requeued or any(not trial.is_closed for trial in self.trials.values()):
            return True
        return self._cell_to_search() is not None or any(
            assignment.trial.trial not in self.trials
            for cell in self.cells.values() for assignment in self._confirm_assignments(cell)
        )

    def promised(self) -> int:
        """How many trials the study comes to if no budget ends a cell early and every cell has a winner."""
        return sum(self._configurations(cell) + len(self.study.seeds) - 1 for cell in self.cells.values())

    def open_attempt(
        self, trial: str, *, number: int, environment: Mapping[str, str], protocol: Mapping[str, object],
        inherited: Sequence[ValidationPoint],
    ) -> None:
        """Records that attempt `number` of a trial started, with the points it inherits from its checkpoint."""
        progress = self.trials[trial]
        if progress.attempt_id is not None and progress.attempt_number != number and progress.status == "running":
            self._store.finish_attempt(
                progress.attempt_id, "killed", summary=_cut_short(progress.curve), artifacts=[],
                error="its process died; a new attempt continues from the checkpoint",
            )
        assignment, spec = progress.assignment, progress.assignment.trial
        cell = self.cells[spec.cell]
        progress.attempt_id = self._store.start_attempt(AttemptStart(
            study=self.study.study, trial=trial, cell=cell.name, network=cell.network_name, loss=cell.loss_name,
            number=number, seed=spec.seed, phase=assignment.phase, configuration=dict(assignment.configuration),
            resolved=spec.to_plain(), environment=environment, protocol=protocol,
        ))
        progress.attempt_number, progress.status = number, "running"
        self._note_points(progress, inherited)

    def record_point(self, trial: str, point: ValidationPoint) -> None:
        """One validation of a running attempt, written in one batch."""
        progress = self.trials[trial]
        self._note_points(progress, [point])
        if progress.assignment.phase == "search":
            self._search.report(
                progress.assignment.trial.cell, progress.assignment.number, step=point.step, m_recall=point.m_recall
            )

    def close(
        self, trial: str, status: AttemptStatus, *, summary: Mapping[str, float], artifacts: Iterable[Path] = (),
        error: str | None = None,
    ) -> None:
        """The end of a trial: to the store first, then to the search."""
        progress = self.trials[trial]
        if progress.is_closed or progress.status == "waiting":
            if progress.is_closed:
                return
            # it died before it could report anything
            self.open_attempt(trial, number=progress.attempt_number + 1, environment={}, protocol={}, inherited=[])
        assert progress.attempt_id is not None
        self._store.finish_attempt(
            progress.attempt_id, status, summary=summary, artifacts=list(artifacts), error=error
        )
        progress.status, progress.error = status, error
        progress.charge(summary)
        self._tell(trial)

    def interrupt(self) -> list[str]:
        """Marks every running attempt as killed (Ctrl-C); a resumed study hands their trials out again."""
        running = [name for name, progress in self.trials.items() if progress.status == "running"]
        for name in running:
            progress = self.trials[name]
            assert progress.attempt_id is not None
            self._store.finish_attempt(
                progress.attempt_id, "killed", summary=_cut_short(progress.curve), artifacts=[],
                error="the study was interrupted",
            )
            progress.status = "killed"
        return running

    def _recover_trial(
        self, assignment: Assignment, by_trial: Mapping[str, list[AttemptRecord]], *, retry_failed: bool
    ) -> None:
        name = assignment.trial.trial
        progress = self.trials[name] = TrialProgress(assignment)
        for record in sorted(by_trial.get(name, []), key=lambda record: record.start.number):
            progress.attempt_id, progress.attempt_number = record.attempt_id, record.start.number
            progress.status, progress.error, progress.curve = record.status, record.error, list(record.curve)
            if record.curve:
                progress.epoch = record.curve[-1][0]
                progress.best_m_recall = max(m_recall for _, m_recall in record.curve)
            progress.charge(record.summary)
        if not progress.is_closed or (retry_failed and progress.status == "failed"):
            progress.status = "waiting"
            self._requeued.append(name)

    def _add(self, assignment: Assignment) -> Assignment:
        self.trials[assignment.trial.trial] = TrialProgress(assignment)
        return assignment

    def _note_points(self, progress: TrialProgress, points: Sequence[ValidationPoint]) -> None:
        if not points:
            return
        assert progress.attempt_id is not None
        self._store.record_points(progress.attempt_id, points)
        for point in points:
            if not progress.curve or point.epoch > progress.curve[-1][0]:
                progress.curve.append((point.epoch, point.m_recall))
        progress.epoch = progress.curve[-1][0]
        progress.best_m_recall = max(m_recall for _, m_recall in progress.curve)

    def _tell(self, trial: str) -> None:
        progress = self.trials[trial]
        if progress.assignment.phase == "search" and progress.is_closed:
            outcomes: dict[str, Outcome] = {"finished": "finished", "pruned": "pruned", "failed": "failed"}
            self._search.tell(
                progress.assignment.trial.cell, progress.assignment.number, outcomes[progress.status],
                best_m_recall=progress.best_m_recall,
            )

    def _cell_to_search(self) -> Cell | None:
        """The cell with the fewest configurations so far among those that may still ask for one."""
        asked = {
            cell.name: len(self._search.suggestions(cell.name))
            for cell in self.cells.values() if not self._is_exhausted(cell)
        }
        open_cells = [name for name, count in asked.items() if count < self._configurations(self.cells[name])]
        return self.cells[min(open_cells, key=lambda name: asked[name])] if open_cells else None

    def _configurations(self, cell: Cell) -> int:
        return self.study.search.configurations if cell.domains else 1

    def _is_exhausted(self, cell: Cell) -> bool:
        budget = self.study.budget
        trials = self._of_cell(cell)
        epochs = sum(trial.charged_epochs or trial.epoch for trial in trials)
        seconds = sum(trial.charged_device_seconds for trial in trials)
        return (budget.epochs_per_cell is not None and epochs >= budget.epochs_per_cell) or (
            budget.device_seconds_per_cell is not None and seconds >= budget.device_seconds_per_cell
        )

    def _of_cell(self, cell: Cell, phase: Phase | None = None) -> list[TrialProgress]:
        return [
            trial for trial in self.trials.values()
            if trial.assignment.trial.cell == cell.name and phase in (None, trial.assignment.phase)
        ]

    def _confirm_assignments(self, cell: Cell) -> list[Assignment]:
        """The winner of a cell with every further seed, once its search is over."""
        searched = self._of_cell(cell, "search")
        asked_all = len(searched) >= self._configurations(cell) or self._is_exhausted(cell)
        if not searched or not asked_all or not all(trial.is_closed for trial in searched):
            return []
        finished = [trial for trial in searched if trial.status == "finished" and trial.best_m_recall is not None]
        if not finished:
            return []
        winner = max(finished, key=lambda trial: trial.best_m_recall or 0.0).assignment
        return [
            Assignment(
                build_trial(
                    self.study, cell, winner.configuration,
                    trial=_trial_id(cell.name, winner.number, seed), seed=seed,
                ),
                winner.number, "confirm", winner.configuration,
            )
            for seed in self.study.seeds[1:]
        ]

    def _search_id(self, cell: Cell, number: int) -> str:
        return _trial_id(cell.name, number, self.study.seeds[0])

    def _search_assignment(self, cell: Cell, suggestion: Suggestion) -> Assignment:
        name = self._search_id(cell, suggestion.number)
        trial = build_trial(self.study, cell, suggestion.configuration, trial=name, seed=self.study.seeds[0])
        return Assignment(trial, suggestion.number, "search", suggestion.configuration)


def _trial_id(cell: str, number: int, seed: int) -> str:
    return f"{cell}-c{number:03d}-s{seed}"


def _cut_short(curve: Sequence[tuple[float, float]]) -> dict[str, float]:
    """What is known of an attempt that could not say goodbye."""
    if not curve:
        return {"epochs": 0.0}
    best = max(m_recall for _, m_recall in curve)
    return {"epochs": curve[-1][0], "best_m_recall": best}
