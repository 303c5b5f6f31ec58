"""The trials of a study: which one runs next, and what has happened so far. Does not depend on Ray.

What has happened is read from the state of the study's log, so a killed driver loses nothing. A trial is handed out
once the log has its configuration, on object storage too if the home is there.

An interrupted trial (its process died, a disk was full, a server did not answer) has not failed: it pauses and
continues from its checkpoint, `resources.retries` times without a new validation. The next interruption leaves it open
for the next run of the study. While a trial of a cell is interrupted, no further configuration is requested for the
cell, so the search sees the same results as in an uninterrupted run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from vsetune.board.selection import ROLES
from vsetune.config.study.cells import Cell, build_trial
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import StorageError
from vsetune.metrics.curves import best_of_curve
from vsetune.records.events import DRAWN_BY, NO_CONFIGURATION, AttemptStart, AttemptStatus, Drawn, ValidationPoint
from vsetune.records.writer import StudyWriter
from vsetune.search.configurations import ConfigurationSearch, Refusal
from vsetune.search.trial_history import DRAWN_BY as SAMPLED_BY
from vsetune.search.trial_history import TrialHistory
from vsetune.study.cell_objectives import search_numbers, target_cell
from vsetune.study.cell_search import CellSearch
from vsetune.study.confirmations import Confirming, trial_id
from vsetune.study.next_trial import next_trial
from vsetune.study.trials import TERMINAL, PlannedTrial, pause_after
from vsetune.training.failures import raised_by_code

_SETTLE_WITHIN_S, _AGAIN_AFTER_S, _AT_MOST_S = 2.0, 5.0, 600.0
"""Constants for a log that accepts no events: how long to wait for it, when to try again, and when the study ends."""
INTERRUPTED = "the study was interrupted"


class StudyLedger:
    """The trials of one study: hands them out, records and closes them. One process per study may have a ledger."""

    def __init__(
        self, study: StudySpec, cells: Sequence[Cell], writer: StudyWriter, *, refuses: Refusal | None = None,
        clock: Callable[[], float] = time.monotonic, confirming: Confirming | None = None,
    ) -> None:
        """refuses, ConfigError: as of `ConfigurationSearch`. confirming: the trials that run again after the search of
        a cell; None: its winner, with the study's other seeds."""
        self.study = study
        self.cells = {
            cell.name: CellSearch(study, cell, writer.state, confirming or Confirming()) for cell in cells
        }
        for each in self.cells.values():
            baseline = target_cell(study, each.cell, self.cells)
            each.baseline = None if baseline is None else self.cells[baseline]
        self._search = ConfigurationSearch(cells, study.search, writer, refuses=refuses)
        self._writer, self._clock = writer, clock
        self.trials: dict[str, PlannedTrial] = {}
        """By name, in the order in which they were first handed out."""
        self.places = 0
        """Trials that the cluster has room for at a time; who hands trials out sets it as the cluster changes."""
        self.outage: str | None = None
        """Why no trial can be handed out at present; None while the log accepts events."""
        self._waiting: list[PlannedTrial] = []
        """Trials to hand out again, in the order in which they were interrupted."""
        self._settle_not_before = float("-inf")
        self._silent_since: float | None = None
        self._retries_failed = False

    def recover(self, *, retry_failed: bool = False) -> None:
        """Rebuilds the ledger after an earlier process ended.

        The trial of a killed attempt is handed out again and continues from its checkpoint. retry_failed: failed trials
        are handed out again too.
        """
        self._retries_failed = retry_failed
        for cell in self.cells.values():
            for drawn in self._search.drawn(cell.name):
                if drawn.state != "refused":
                    self._recover_trial(self._searched(cell, drawn))
            is_stuck = self._search.why_none(cell.name) is not None and not retry_failed
            if is_stuck or self._search.is_exhausted(cell.name):
                self._end_search(cell)
        for cell in self.cells.values():
            for trial in cell.unconfirmed:
                if trial.attempts:
                    self._recover_trial(trial)

    def next(self, cells: Container[str] | None = None) -> PlannedTrial | Literal["wait", "done"]:
        """The next trial by the rules of `next_trial`, once the log has it. "wait": none can start now; "done": none is
        left, or the log has not accepted events for too long. cells: only trials of these cells, while the other cells
        wait; None: of all cells."""
        now = self._clock()
        if now < self._settle_not_before:
            return "wait"
        found = self._chosen(now, cells)
        if isinstance(found, str):
            return found
        try:
            self._writer.settle(_SETTLE_WITHIN_S)
        except StorageError as error:
            self._waiting.append(found)
            self.outage, self._settle_not_before = str(error), now + _AGAIN_AFTER_S
            self._silent_since = now if self._silent_since is None else self._silent_since
            is_running = any(not each.is_closed and each.status == "running" for each in self.trials.values())
            return "done" if now - self._silent_since > _AT_MOST_S and not is_running else "wait"
        self.outage = self._silent_since = None
        return found

    def _chosen(self, now: float, cells: Container[str] | None) -> PlannedTrial | Literal["wait", "done"]:
        while True:
            found = next_trial(
                list(self.cells.values()), self._waiting, now=now, places=self.places, fitting=cells
            )
            if isinstance(found, CellSearch):
                drawn = self._search.ask(found.name, self.history(found.name))
                if drawn is not None:
                    return self._know(self._searched(found, drawn))
                self._end_search(found)
            elif isinstance(found, str):
                return found
            elif found in self._waiting:
                self._waiting.remove(found)
                return found
            elif found.attempts:  # a confirmation of an earlier process, whose search was resumed
                self._recover_trial(found)
            else:
                return self._know(found)

    def unfinished(self) -> list[str]:
        """The cells that have trials to run now or later."""
        return [
            cell.name for cell in self.cells.values()
            if cell.is_running_or_pausing or not cell.is_exhausted or cell.unconfirmed
        ]

    def searching(self) -> list[str]:
        """The cells whose search is not over."""
        return [cell.name for cell in self.cells.values() if not cell.is_over]

    def target_of(self, cell: str) -> float | None:
        """The M-Recall, in per cent, at which trials of the cell's search stop; None without a target."""
        known = self.cells[cell].objective
        return known.target if known is not None else None

    def has_work(self) -> bool:
        """Whether a trial is unfinished or still to be asked for. Does not ask for one."""
        is_open = any(not trial.is_closed for trial in self.trials.values())
        return is_open or any(cell.has_more for cell in self.cells.values())

    def promised(self) -> int:
        """Estimate of the study's number of trials."""
        return sum(cell.promised for cell in self.cells.values())

    def open_attempt(
        self, trial: str, *, number: int, environment: Mapping[str, str], protocol: Mapping[str, object],
        inherited: Sequence[ValidationPoint],
    ) -> None:
        """Records that attempt `number` of a trial started, with the points it inherits from its checkpoint."""
        planned = self.trials[trial]
        if planned.status == "running" and planned.attempts.number != number:
            self._end(planned, "killed", {}, [], "its process died; a new attempt continues from the checkpoint")
        search, spec = self.cells[planned.cell], planned.spec
        cell = search.cell
        notes = {ROLES: " and ".join(planned.roles)} if planned.roles else {}
        notes |= {DRAWN_BY: planned.drawn_by} if planned.drawn_by else {}
        notes |= search.recorded_budget() if planned.phase == "search" else {}
        self._writer.start_attempt(AttemptStart(
            study=self.study.study, trial=trial, cell=cell.name, network=cell.network_name, loss=cell.loss_name,
            number=number, seed=spec.seed, phase=planned.phase, configuration=dict(planned.configuration),
            resolved=spec.to_plain(), environment={**environment, **notes}, protocol=protocol,
        ))
        planned.begun()
        self._note_points(planned, inherited)

    def record_point(self, trial: str, point: ValidationPoint, *, summary: Mapping[str, float] | None = None) -> None:
        """Records one validation of a running attempt, in one batch. summary: the attempt's totals so far."""
        planned = self.trials[trial]
        self._note_points(planned, [point])
        planned.totals = dict(summary or {})

    def close(
        self, trial: str, status: AttemptStatus, *, summary: Mapping[str, float], artifacts: Iterable[Path] = (),
        error: str | None = None,
    ) -> None:
        """Ends a trial. artifacts: files of the trial's folder."""
        planned = self.trials[trial]
        if planned.is_closed:
            return
        self._require_attempt(planned)
        self._end(planned, status, summary, list(artifacts), error)

    def interrupted(self, trial: str, reason: str, *, was_asked: bool = False) -> float | None:
        """Notes that a trial was stopped from outside. Returns the seconds that it pauses before it continues.

        was_asked: its machine was taken away with a warning; it continues at once, and the interruption is not counted.
        None: the trial has been interrupted too often without a new validation and is left open for the next run of the
        study; or it has failed, because its code raised the same error at the same place before (`raised_by_code`); or
        it was closed already.
        """
        planned = self.trials[trial]
        if planned.is_closed:
            return None
        origin = raised_by_code(reason)
        if origin is not None and origin in [raised_by_code(attempt.error) for attempt in planned.attempts]:
            again = f"{reason} (twice at this place, so it is no outage)"
            self.close(trial, "failed", summary=planned.totals, error=again)
            return None
        if origin is not None:
            self._require_attempt(planned)  # its record identifies the next error there as the second
        if planned.status == "running":
            self._end(planned, "killed", planned.totals, [], reason)
        pause = self._paused(planned, reason, was_asked=was_asked)
        if pause is not None:
            self._waiting.append(planned)
        return pause

    def interrupt(self) -> list[str]:
        """Marks every running attempt as killed (Ctrl-C); a resumed study hands their trials out again. Returns the
        names of these trials."""
        running = [trial for trial in self.trials.values() if trial.status == "running"]
        for trial in running:
            self._end(trial, "killed", trial.totals, [], INTERRUPTED)
        return [trial.name for trial in running]

    def _require_attempt(self, planned: PlannedTrial) -> None:
        """Makes sure that the log has the attempt, even if it ended before it could report anything."""
        if planned.status == "waiting":
            number = planned.attempts.number + 1
            self.open_attempt(planned.name, number=number, environment={}, protocol={}, inherited=[])

    def _paused(self, planned: PlannedTrial, reason: str, *, was_asked: bool) -> float | None:
        """Seconds that an interrupted trial waits; None if it is left open."""
        planned.reason = reason
        if was_asked:
            return 0.0
        planned.interruptions += 1
        if planned.interruptions > self.study.resources.retries:
            planned.is_left_open = True
            return None
        pause = pause_after(planned.interruptions)
        planned.not_before = self._clock() + pause
        return pause

    def _end(
        self, planned: PlannedTrial, status: AttemptStatus, summary: Mapping[str, float], artifacts: list[Path],
        error: str | None,
    ) -> None:
        known = {**_from_curve(planned.curve), **summary}
        if planned.phase == "search" and status in TERMINAL:
            known |= search_numbers(self.study, self.cells[planned.cell].objective, planned.curve, known)
        files = [f"trials/{planned.name}/{path.name}" for path in artifacts]
        self._writer.finish_attempt(_running(planned), status, summary=known, files=files, error=error)

    def _recover_trial(self, planned: PlannedTrial) -> None:
        planned.is_again = self._retries_failed and planned.status == "failed"
        self._know(planned)
        if not planned.is_closed:
            self._waiting.append(planned)

    def history(self, cell: str) -> TrialHistory:
        """The trials of a cell's search as samplers see them. The target of the cell must be known."""
        objective, searched = self.cells[cell].objective, self.cells[cell].searched
        assert objective is not None, f"{cell}: its target is not known"
        ended = {trial.number: trial.attempts[-1] for trial in searched if trial.is_closed}
        return self._search.history(cell, objective, ended)

    def _end_search(self, cell: CellSearch) -> None:
        """Notes that the cell has no further configuration. If all of the last ones were refused, a failed trial stands
        for the one that was not found. Its name differs from the names of all configurations."""
        why = self._search.why_none(cell.name)
        if why is not None:
            number, seed = self._search.drawn(cell.name)[-1].number, cell.cell.seeds[0]
            name = f"{cell.name}-refused{number:03d}-s{seed}"
            trial = build_trial(self.study, cell.cell, {}, trial=name, seed=seed)
            self._know(PlannedTrial(self._writer.state, trial, number, "search", {}))
        cell.has_no_more = True
        if why is not None:
            self.close(name, "failed", summary={}, error=f"{NO_CONFIGURATION} for {why}")

    def _know(self, planned: PlannedTrial) -> PlannedTrial:
        self.trials[planned.name] = planned
        self.cells[planned.cell].add(planned)
        return planned

    def _note_points(self, planned: PlannedTrial, points: Sequence[ValidationPoint]) -> None:
        if points:
            furthest = planned.attempts.furthest
            self._writer.record_points(_running(planned), points)
            planned.validated(furthest)

    def _searched(self, cell: CellSearch, drawn: Drawn) -> PlannedTrial:
        """The trial of a configuration of the cell's search."""
        seed = cell.cell.seeds[0]
        name = trial_id(cell.name, drawn.number, seed)
        trial = build_trial(self.study, cell.cell, drawn.configuration, trial=name, seed=seed)
        return PlannedTrial(
            self._writer.state, trial, drawn.number, "search", drawn.configuration,
            drawn_by=str(drawn.attributes.get(SAMPLED_BY, "")),
        )


def _running(planned: PlannedTrial) -> str:
    """Name of the attempt that runs."""
    assert planned.status == "running", f"{planned.name}: no attempt is running"
    return planned.attempts[-1].attempt_id


def _from_curve(curve: Sequence[tuple[float, float]]) -> dict[str, float]:
    """The summary of an attempt that ended without sending one."""
    if not curve:
        return {"epochs": 0.0}
    return {"epochs": curve[-1][0], "best_m_recall": best_of_curve(curve).m_recall}
