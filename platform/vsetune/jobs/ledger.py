"""Which trial runs next and what has happened so far. Knows nothing of Ray.

The study's log is the truth about what was sampled and about attempts. Everything here is a copy that `StudyLedger`
rebuilds from it when a study is resumed, so a killed driver loses nothing. A trial is handed out once the log has its
configuration, in a home on object storage too.

An interrupted trial (its process died, a disk was full, a server away) is not failed: it pauses, goes on from its
checkpoint, and after `resources.retries` interruptions without a new validation it is left open for the next run of
the study. As long as a trial of a cell is interrupted its cell asks for no further configuration, so that the search
knows the same when it asks as it would have known undisturbed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from vsetune.config.study.cells import Cell, build_trial
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import ConfigError, StorageError
from vsetune.jobs.cell_budget import at_once
from vsetune.jobs.cell_goals import CellGoals
from vsetune.jobs.cell_trials import CellTrials
from vsetune.jobs.confirmations import Confirmations, Confirming, further_seeds, trial_id
from vsetune.jobs.requeued import Requeued, pause_after
from vsetune.jobs.study_tally import StudyTally
from vsetune.jobs.trial_progress import TERMINAL, Assignment, TrialProgress
from vsetune.jobs.warm_start import WarmStart
from vsetune.leaderboard.selection import ROLES
from vsetune.metrics.curves import best_of_curve
from vsetune.records.attempts import (
    DRAWN_BY,
    NO_CONFIGURATION,
    WARM_START,
    AttemptRecord,
    AttemptStart,
    AttemptStatus,
    ValidationPoint,
)
from vsetune.records.writer import StudyWriter
from vsetune.search.configurations import ConfigurationSearch, DeadEnd, Suggestion
from vsetune.training.failures import raised_by_code

_SETTLE_WITHIN_S, _AGAIN_AFTER_S, _AT_MOST_S = 2.0, 5.0, 600.0
"""Of a log that takes nothing: how long it is waited for, when it is asked again, and when the study ends."""


class StudyLedger:
    """The trials of one study: handed out, recorded, closed. One process per study may hold one."""

    def __init__(
        self, study: StudySpec, cells: Sequence[Cell], writer: StudyWriter, search: ConfigurationSearch, *,
        clock: Callable[[], float] = time.monotonic, confirming: Confirming | None = None,
        warm_start: Mapping[str, WarmStart] | None = None,
    ) -> None:
        """confirming: what runs again after the search of a cell; None: its winner, with the study's other seeds.
        warm_start: by cell, what the search learns from other studies."""
        self.study = study
        self.cells = {cell.name: cell for cell in cells}
        self._writer, self._search, self._clock = writer, search, clock
        self.trials: dict[str, TrialProgress] = {}
        self._by_cell = CellTrials(study, cells)
        self.tally = StudyTally(self.cells)
        """What is shown of the trials while the study runs."""
        self.outage: str | None = None
        """Why no trial can be handed out just now; None while the log takes what is added."""
        self._requeued = Requeued(not_before=lambda name: self.trials[name].not_before)
        self._settle_not_before = float("-inf")
        self._silent_since: float | None = None
        self._warm_start = warm_start or {}
        self._taught: set[str] = set()
        self._recorded: Mapping[str, Sequence[AttemptRecord]] = {}
        """By trial, the attempts that the log had when this process began."""
        self._retries_failed = False
        self._goals = CellGoals(study, self.cells, searched=self._by_cell.searched)
        self._confirmations = Confirmations(
            study, further_seeds(study) if confirming is None else confirming, searched=self._by_cell.searched
        )

    def recover(self, *, retry_failed: bool = False) -> None:
        """Rebuilds the ledger, and what the search knows of outcomes, after an earlier process ended.

        The trial of a killed attempt is handed out again (it goes on from its checkpoint).
        """
        by_trial: dict[str, list[AttemptRecord]] = {}
        for record in self._writer.attempts():
            by_trial.setdefault(record.start.trial, []).append(record)
        self._recorded, self._retries_failed = by_trial, retry_failed
        for cell in self.cells.values():
            for suggestion in self._search.suggestions(cell.name):
                self._recover_trial(self._search_assignment(cell, suggestion))
            is_exhausted, dead_end = self._search.is_exhausted(cell.name), self._search.dead_end(cell.name)
            if dead_end is not None and (is_exhausted or not retry_failed):
                self._fail_to_draw(cell, dead_end)
            elif is_exhausted:
                self._by_cell.exhaust(cell)
        for name in list(self.trials):  # what one is worth may depend on the trials of another cell
            self._tell(name)
        for cell in self.cells.values():
            for assignment in self._confirmations.of(cell):
                if assignment.trial.trial in by_trial:
                    self._recover_trial(assignment)

    def next(self, cells: Container[str] | None = None) -> Assignment | Literal["wait", "done"]:
        """The next trial, once the log has it: what is nearest to a result comes first.

        Interrupted ones, then confirmations of cells whose search is over, then the cell with the fewest
        configurations. cells: only of these, the others are waited for; None: of all.
        """
        now = self._clock()
        if now < self._settle_not_before:
            return "wait"
        found = self._chosen(cells)
        if isinstance(found, str):
            return found
        try:
            self._writer.settle(_SETTLE_WITHIN_S)
        except StorageError as error:
            self._requeued.add(found.trial.trial)
            self.outage, self._settle_not_before = str(error), now + _AGAIN_AFTER_S
            self._silent_since = now if self._silent_since is None else self._silent_since
            is_given_up = now - self._silent_since > _AT_MOST_S and not self._by_cell.count("running")
            return "done" if is_given_up else "wait"
        self.outage = self._silent_since = None
        return found

    def _chosen(self, cells: Container[str] | None) -> Assignment | Literal["wait", "done"]:
        now, may = self._clock(), [cell for cell in self.cells.values() if cells is None or cell.name in cells]
        ready = self._requeued.next(
            now, may=lambda name: cells is None or self.trials[name].assignment.trial.cell in cells
        )
        if ready is not None:
            return self.trials[ready].assignment
        confirmation = self._next_confirmation(may)
        if confirmation is not None and confirmation.trial.trial in self._recorded:  # its search was taken up again
            self._recover_trial(confirmation)
            return self._chosen(cells)
        if confirmation is not None:
            return self._add(confirmation)
        cell = self._cell_to_search(may)
        if cell is not None:
            return self._asked(cell, cells)
        is_passed_over = len(may) < len(self.cells) and self._has_more()
        return "wait" if is_passed_over or self._by_cell.count("due") else "done"

    def unfinished(self) -> list[str]:
        """The cells that have trials to run, or will have."""
        due = {
            trial.assignment.trial.cell for trial in self.trials.values()
            if not (trial.is_closed or trial.is_left_open)
        }
        return [
            cell.name for cell in self.cells.values()
            if cell.name in due or not self._by_cell.is_exhausted(cell) or self._confirmations.left(cell, self.trials)
        ]

    def searching(self) -> list[str]:
        """The cells whose search is not over."""
        return [cell.name for cell in self.cells.values() if self._by_cell.is_searching(cell)]

    def target_of(self, cell: str) -> float | None:
        """The M-Recall, in per cent, at which trials of the cell's search stop; None: there is none."""
        return self._goals.target(cell)

    def has_work(self) -> bool:
        """Whether a trial is unfinished or still to be asked for. Asks for nothing."""
        return bool(self._by_cell.count("open")) or self._has_more()

    def _has_more(self) -> bool:
        """Whether a trial is still to be asked for."""
        cells = list(self.cells.values())
        return self._cell_to_search(cells) is not None or self._next_confirmation(cells) is not None

    def promised(self) -> int:
        """How many trials the study comes to as far as one can say: stopped ones make room for others, a budget in
        seconds may end a cell early."""
        asked = {cell.name: self._by_cell.asked(cell) for cell in self.cells.values()}
        return sum(
            asked[cell.name] + self._by_cell.budget(cell).room(asked[cell.name]) + self._confirmations.promised(cell)
            for cell in self.cells.values()
        )

    def open_attempt(
        self, trial: str, *, number: int, environment: Mapping[str, str], protocol: Mapping[str, object],
        inherited: Sequence[ValidationPoint],
    ) -> None:
        """Records that attempt `number` of a trial started, with the points it inherits from its checkpoint."""
        progress = self.trials[trial]
        if progress.status == "running" and progress.number != number:
            self._end(progress, "killed", {}, [], "its process died; a new attempt continues from the checkpoint")
        assignment, spec = progress.assignment, progress.assignment.trial
        cell = self.cells[spec.cell]
        told = {ROLES: " and ".join(assignment.roles)} if assignment.roles else {}
        told |= {WARM_START: self._warm_start[cell.name].tag} if cell.name in self._warm_start else {}
        told |= {DRAWN_BY: assignment.drawn_by} if assignment.drawn_by else {}
        told |= self._by_cell.recorded_budget(cell) if assignment.phase == "search" else {}
        start = AttemptStart(
            study=self.study.study, trial=trial, cell=cell.name, network=cell.network_name, loss=cell.loss_name,
            number=number, seed=spec.seed, phase=assignment.phase, configuration=dict(assignment.configuration),
            resolved=spec.to_plain(), environment={**environment, **told}, protocol=protocol,
        )
        progress.begin(self._writer.start_attempt(start), start)
        self._changed(progress)
        self._note_points(progress, inherited)
        self._changed(progress)

    def record_point(self, trial: str, point: ValidationPoint, *, summary: Mapping[str, float] | None = None) -> None:
        """One validation of a running attempt, written in one batch. summary: the attempt's totals so far."""
        progress = self.trials[trial]
        self._note_points(progress, [point])
        progress.summary = dict(summary or {})
        self._changed(progress)

    def close(
        self, trial: str, status: AttemptStatus, *, summary: Mapping[str, float], artifacts: Iterable[Path] = (),
        error: str | None = None,
    ) -> None:
        """The end of a trial, for the log and then for the search. artifacts: files of the trial's folder."""
        progress = self.trials[trial]
        if progress.is_closed:
            return
        self._require_attempt(progress)
        self._end(progress, status, summary, list(artifacts), error)
        self._tell(trial)

    def interrupted(self, trial: str, reason: str, *, was_asked: bool = False) -> float | None:
        """A trial was stopped by nothing of its own: it is handed out again after a pause, whose seconds are returned.

        was_asked: its machine was taken away with a warning; it goes on at once, and that counts for nothing.
        None: it has been interrupted too often without a new validation and is left open for the next run of the study;
        or it has failed, since its code raised the same at the same place before (`raised_by_code`).
        """
        progress = self.trials[trial]
        if progress.is_closed:
            return None
        origin = raised_by_code(reason)
        if origin is not None and origin in [raised_by_code(attempt.error) for attempt in progress.attempts()]:
            again = f"{reason} (twice at this place, so it is no outage)"
            self.close(trial, "failed", summary=progress.summary, error=again)
            return None
        if origin is not None:
            self._require_attempt(progress)  # its record is what tells a second time from a first
        if progress.status == "running":
            self._end(progress, "killed", progress.summary, [], reason)
        pause = self._paused(progress, reason, was_asked=was_asked)
        self._changed(progress)
        if pause is not None:
            self._requeued.add(trial)
        return pause

    def interrupt(self) -> list[str]:
        """Marks every running attempt as killed (Ctrl-C); a resumed study hands their trials out again."""
        running = [name for name, progress in self.trials.items() if progress.status == "running"]
        for name in running:
            progress = self.trials[name]
            self._end(progress, "killed", progress.summary, [], "the study was interrupted")
        return running

    def _require_attempt(self, progress: TrialProgress) -> None:
        """A record, also of an attempt that ended before it could report anything."""
        if progress.status == "waiting":
            trial, number = progress.assignment.trial.trial, progress.number + 1
            self.open_attempt(trial, number=number, environment={}, protocol={}, inherited=[])

    def _paused(self, progress: TrialProgress, reason: str, *, was_asked: bool) -> float | None:
        """Seconds that an interrupted trial waits; None leaves it open."""
        progress.status, progress.error = "waiting", reason
        if was_asked:
            return 0.0
        progress.interruptions += 1
        if progress.interruptions > self.study.resources.retries:
            progress.is_left_open = True
            return None
        pause = pause_after(progress.interruptions)
        progress.not_before = self._clock() + pause
        return pause

    def _end(
        self, progress: TrialProgress, status: AttemptStatus, summary: Mapping[str, float], artifacts: list[Path],
        error: str | None,
    ) -> None:
        known = {**_from_curve(progress.curve), **summary}
        if progress.assignment.phase == "search" and status in TERMINAL:
            known |= self._goals.numbers(progress, known)
        files = [f"trials/{progress.assignment.trial.trial}/{path.name}" for path in artifacts]
        self._writer.finish_attempt(progress.attempt_id, status, summary=known, files=files, error=error)
        progress.end(status, known, error)
        self._changed(progress)

    def _recover_trial(self, assignment: Assignment) -> None:
        name, progress = assignment.trial.trial, self._know(self._as_recorded(assignment))
        if not progress.is_closed or (self._retries_failed and progress.status == "failed"):
            progress.status = "waiting"
            self._changed(progress)
            self._requeued.add(name)

    def _as_recorded(self, assignment: Assignment) -> TrialProgress:
        records = self._recorded.get(assignment.trial.trial, ())
        return TrialProgress.recorded(assignment, sorted(records, key=lambda record: record.start.number))

    def _asked(self, cell: Cell, cells: Container[str] | None) -> Assignment | Literal["wait", "done"]:
        """A new configuration of a cell. cells: as `next` has it."""
        self._teach(cell)
        try:
            suggestion = self._search.ask(cell.name)
        except ConfigError:
            dead_end = self._search.dead_end(cell.name)
            if dead_end is None:
                raise
            self._fail_to_draw(cell, dead_end)
            return self._chosen(cells)
        if suggestion is None:
            self._by_cell.exhaust(cell)
            return self._chosen(cells)
        return self._add(self._search_assignment(cell, suggestion))

    def _fail_to_draw(self, cell: Cell, dead_end: DeadEnd) -> None:
        """A failed trial stands for the configuration that the cell could not find, and the cell asks for no other. Its
        name is that of no configuration."""
        seed = self.study.seeds[0]
        name = f"{cell.name}-refused{dead_end.number:03d}-s{seed}"
        trial = build_trial(self.study, cell, {}, trial=name, seed=seed)
        progress = self._as_recorded(Assignment(trial, dead_end.number, "search", {}))
        if not progress.is_closed:
            progress.status = "waiting"
        self._know(progress)
        self._by_cell.exhaust(cell)
        self.close(name, "failed", summary={}, error=f"{NO_CONFIGURATION} for {dead_end.reason}")

    def _teach(self, cell: Cell) -> None:
        """Once in every process, before the first configuration; by then the cell's target is known."""
        warm, objective = self._warm_start.get(cell.name), self._goals.objective(cell)
        if warm is None or objective is None or cell.name in self._taught:
            return
        self._search.teach(cell.name, warm.lessons(objective), [each.settings for each in warm.starts])
        self._taught.add(cell.name)

    def _add(self, assignment: Assignment) -> Assignment:
        self._know(TrialProgress(assignment))
        return assignment

    def _know(self, progress: TrialProgress) -> TrialProgress:
        trial = progress.assignment.trial
        self.trials[trial.trial] = progress
        self._by_cell.add(progress)
        self.tally.changed(progress)
        return progress

    def _changed(self, progress: TrialProgress) -> None:
        self._by_cell.changed(progress)
        self.tally.changed(progress)

    def _note_points(self, progress: TrialProgress, points: Sequence[ValidationPoint]) -> None:
        if points:
            self._writer.record_points(progress.attempt_id, points)
            progress.note(points)

    def _tell(self, trial: str) -> None:
        """The search hears of a closed trial."""
        progress = self.trials[trial]
        assignment = progress.assignment
        if assignment.phase == "search" and progress.is_closed:
            outcome, curve = self._goals.told(progress)
            self._search.tell(assignment.trial.cell, assignment.number, outcome, curve=curve)

    def _cell_to_search(self, cells: Iterable[Cell]) -> Cell | None:
        """The cell with the fewest epochs promised so far among those that may ask for a configuration now."""
        committed: dict[str, float] = {}
        for cell in cells:
            if self._by_cell.count("disturbed", cell) or self._by_cell.is_exhausted(cell):
                continue
            if self._goals.objective(cell) is None:  # its target is not known yet
                continue
            if self._by_cell.count("open", cell) < at_once(self.study.search, self._by_cell.asked(cell)):
                committed[cell.name] = self._by_cell.budget(cell).committed
        return self.cells[min(committed, key=lambda name: committed[name])] if committed else None

    def _next_confirmation(self, cells: Iterable[Cell]) -> Assignment | None:
        """One that has not been handed out."""
        return next((
            assignment for cell in cells for assignment in self._confirmations.left(cell, self.trials)
        ), None)

    def _search_id(self, cell: Cell, number: int) -> str:
        return trial_id(cell.name, number, self.study.seeds[0])

    def _search_assignment(self, cell: Cell, suggestion: Suggestion) -> Assignment:
        name = self._search_id(cell, suggestion.number)
        trial = build_trial(self.study, cell, suggestion.configuration, trial=name, seed=self.study.seeds[0])
        return Assignment(
            trial, suggestion.number, "search", suggestion.configuration, drawn_by=suggestion.drawn_by
        )



def _from_curve(curve: Sequence[tuple[float, float]]) -> dict[str, float]:
    """What is known of an attempt that could not say goodbye."""
    if not curve:
        return {"epochs": 0.0}
    return {"epochs": curve[-1][0], "best_m_recall": best_of_curve(curve).m_recall}
