"""Which configurations of a cell to try: one Optuna study per cell, in one durable storage.

Cells are searched separately on purpose: each gets the same number of configurations and its own history, so no
loss is tried more often because another one started slowly (docs/decisions/0002).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from optuna.distributions import BaseDistribution, check_distribution_compatibility
from optuna.trial import TrialState, create_trial

from vsetune.config.study.cells import Cell
from vsetune.config.study.study_spec import SearchSpec
from vsetune.errors import ConfigError, StorageError, StudyConflict
from vsetune.metrics.curves import best_of_curve
from vsetune.search.drawing import CellDrawing, Value, distributions_of, is_whole
from vsetune.search.memory_trials import MemoryTrials
from vsetune.search.sampling.sampler import Draw
from vsetune.search.trial_history import BEGINS_ANEW, DRAWN_BY, NOTES, REFUSED, TAUGHT, TrialHistory
from vsetune.search.trial_rows import ended
from vsetune.search.trial_storage import SearchStorage

logger = logging.getLogger(__name__)

Outcome = Literal["finished", "pruned", "failed"]
"""failed: its numbers were not finite. Failures that say nothing of the configuration are not told."""

Refusal = Callable[[str, Mapping[str, Value]], str | None]
"""(cell, configuration) -> why no trial can be made of it, in one line, or None."""

_MOST_REFUSED = 100
_REMEDY = "make it reachable and writable again, then resume"


@dataclass(frozen=True)
class Lesson:
    """A whole trial of another study. source: STUDY/TRIAL. value: what this search maximises, of that trial."""

    source: str
    configuration: Mapping[str, Value]
    value: float


@dataclass(frozen=True)
class DeadEnd:
    """Why a cell draws no valid configuration, in one line. number: of the last draw that was refused."""

    number: int
    reason: str


@dataclass(frozen=True)
class Suggestion:
    """Configuration `number` (from 0, with gaps where draws were refused) of a cell. is_open: not told yet.

    drawn_by: which sampler drew it and what that had learnt from, in one line; empty for one of an earlier version.
    """

    cell: str
    number: int
    configuration: Mapping[str, Value]
    is_open: bool
    drawn_by: str = ""


class ConfigurationSearch:
    """Asks for configurations and is told how they went; survives `kill -9` because every call is stored at once.

    What was asked and told is kept in memory as well; it is read again by `suggestions` and after an error. Every
    method raises StorageError, in one line and within seconds, when the storage is locked, full or gone; nothing is
    lost by it and the same call works once the storage does. Not thread-safe; one process per study may write.
    """

    def __init__(
        self, study: str, cells: list[Cell], spec: SearchSpec, *, storage: str | None, refuses: Refusal | None = None,
        driver: str | None = None,
    ) -> None:
        """storage: an Optuna storage URL; None keeps all in memory, for a search that ends with this process.
        refuses: asked of every draw before it is suggested; None accepts all. driver: see `SearchStorage`.
        """
        self._study, self._refuses = study, refuses
        self._cells = {cell.name: cell for cell in cells}
        self._distributions = {cell.name: distributions_of(cell) for cell in cells}
        self._drawings = {cell.name: CellDrawing(spec, cell) for cell in cells}
        self._histories: dict[str, TrialHistory] = {}
        names = [f"{study}/{cell.name}" for cell in cells]
        self._storage = (
            MemoryTrials(studies=names) if storage is None else SearchStorage(storage, studies=names, driver=driver)
        )

    def suggestions(self, cell: str) -> list[Suggestion]:
        """Every configuration asked so far, in order, as the storage has it; refused draws are left out."""
        self._histories.pop(cell, None)
        return [
            Suggestion(
                cell, trial.number, dict(trial.params), is_open=not trial.state.is_finished(),
                drawn_by=str(trial.user_attrs.get(DRAWN_BY, "")),
            )
            for trial in self._history(cell) if not trial.user_attrs.keys() & {REFUSED, TAUGHT}
        ]

    def restore(self, cell: str, recorded: Sequence[Suggestion]) -> int:
        """Brings back what the record of the study says was asked and the storage does not have, under the same
        numbers; how many configurations those are. `tell` then says how they went.

        recorded: in whatever order. StudyConflict where the storage has another configuration under a number.
        """
        self._histories.pop(cell, None)
        history, before = self._history(cell), len(self._history(cell))
        for each in sorted(recorded, key=lambda each: each.number):
            there = history.numbered(each.number)
            if there is None:
                told = {DRAWN_BY: each.drawn_by} if each.drawn_by else {}
                self._add(cell, each.configuration, told, TrialState.RUNNING, number=each.number)
            elif not _is_same(there.params, each.configuration) or there.user_attrs.keys() & {REFUSED, TAUGHT}:
                raise StudyConflict(
                    f"search.storage: {self._storage.shown} has another configuration {each.number} of {cell} than the "
                    "record of the study; bring back the database that it began with, or move this one away: it is "
                    "rebuilt from the record"
                )
        return len(history) - before

    def teach(
        self, cell: str, lessons: Sequence[Lesson], starts: Sequence[Mapping[str, Value]] = ()
    ) -> None:
        """What other studies know. Call it in every process before the first `ask`; lessons are stored once.

        lessons: configurations of this cell's space; they are in the history as if they had been drawn here, and may be
        drawn here all the same. starts: see `CellDrawing`.
        """
        self._drawings[cell].starts = starts
        known = {trial.user_attrs.get(TAUGHT) for trial in self._history(cell)}
        for lesson in lessons:
            if lesson.source not in known:
                self._add(cell, lesson.configuration, {TAUGHT: lesson.source}, TrialState.COMPLETE, lesson.value)

    def forget(self, cell: str) -> None:
        """What was asked of a cell counts no more, for one that begins anew because none of it has run. Its numbers
        go on, and it may search another space than before."""
        with self._storage.guarded("{} cannot be read", _REMEDY):
            trials = self._storage.trials(self._name(cell))
        self._histories[cell] = TrialHistory(applying=self._cells[cell].applying)
        if trials and BEGINS_ANEW not in trials[-1].user_attrs:
            self._add(cell, {}, {BEGINS_ANEW: True}, TrialState.FAIL)
            del self._histories[cell]

    def is_exhausted(self, cell: str) -> bool:
        """Whether every configuration of a finite space was drawn, so that there is nothing more to ask for."""
        return self._drawings[cell].left(self._history(cell)) == 0

    def ask(self, cell: str) -> Suggestion | None:
        """The next configuration of a cell, none that it has had before; None where it has had all. The same history
        and seed give the same configuration.

        It is in the storage whole or, if the process dies, not at all. A draw that `refuses` has a reason against is
        recorded with it, told to the sampler as one that led nowhere, and replaced by the next draw. ConfigError after
        100 such draws in a row, and where a finite space has no others; `dead_end` says the same later.
        """
        drawing, refuses = self._drawings[cell], self._refuses
        for _ in range(_MOST_REFUSED):
            history = self._history(cell)
            if not history and (gaps := drawing.gaps()):
                logger.warning("%s", gaps)
            drawn = drawing.next(history)
            if drawn is None:
                break
            reason = refuses(cell, drawn.configuration) if refuses is not None else None
            number = self._store(cell, drawn, reason)
            if reason is None:
                logger.info("search: %s: configuration %d by %s", cell, number, drawn.why)
                return Suggestion(cell, number, drawn.configuration, is_open=True, drawn_by=drawn.why)
        dead_end = self.dead_end(cell)
        if dead_end is not None:
            raise ConfigError(f"search: {dead_end.reason}")
        return None

    def dead_end(self, cell: str) -> DeadEnd | None:
        """Set once 100 draws in a row were refused, or every configuration of a finite space; None before."""
        own = [trial for trial in self._history(cell) if TAUGHT not in trial.user_attrs]
        refused = list(itertools.takewhile(lambda trial: REFUSED in trial.user_attrs, reversed(own)))
        if len(refused) >= _MOST_REFUSED:
            what = f"{len(refused)} draws in a row"
        elif refused and len(refused) == len(own) and self.is_exhausted(cell):
            what = f"all {self._histories[cell].distinct} configurations of its space"
        else:
            return None
        last = refused[0]
        values = ", ".join(f"{name} {_shown(value)}" for name, value in last.params.items())
        why = str(last.user_attrs[REFUSED]).removeprefix(f"cell {cell}: ")
        return DeadEnd(last.number, (
            f"cell {cell}: {what} were refused, the last ({values}) because {why}; make the search range and what the "
            "spec accepts agree (`losses check` and `networks check` try values inside ranges)"
        ))

    def tell(self, cell: str, number: int, outcome: Outcome, *, curve: Sequence[tuple[float, float]]) -> None:
        """How a configuration went. curve: (epoch, M-Recall in per cent) of every validation of its trial.

        finished: with the best of its curve. pruned: the sampler ranks it by how far it got. failed, and finished
        without a validation: like the worst of the pruned, whatever it had reached, so that the sampler keeps
        away from there. Telling twice changes nothing; a tell cut short can be repeated.
        """
        trial = self._history(cell).numbered(number)
        if trial is None:
            raise StorageError(
                f"search.storage: {self._storage.shown} has no configuration {number} of {cell}; bring back the "
                "database that this study began with"
            )
        if trial.state.is_finished():
            return
        points = {} if outcome == "failed" else {round(1000 * epoch): m_recall for epoch, m_recall in reversed(curve)}
        is_complete = outcome == "finished" and bool(curve)
        state = TrialState.COMPLETE if is_complete else TrialState.PRUNED
        told = ended(trial, state, best_of_curve(curve).m_recall if is_complete else None, points)
        with self._writing(cell) as history:
            self._storage.end(self._name(cell), trial, told)
            history.update(told)

    def _history(self, cell: str) -> TrialHistory:
        """Every whole trial of a cell, refused draws included, in order."""
        if cell not in self._histories:
            with self._storage.guarded("{} cannot be read", _REMEDY):
                trials = self._storage.trials(self._name(cell))
                marks = [place for place, trial in enumerate(trials, start=1) if BEGINS_ANEW in trial.user_attrs]
                counted = trials[max(marks, default=0):]
                whole = [trial for trial in counted if is_whole(trial, self._cells[cell])]
            for trial in whole[:1]:
                _require_same_space(cell, trial.distributions, self._distributions[cell])
            self._histories[cell] = TrialHistory(whole, applying=self._cells[cell].applying)
        return self._histories[cell]

    def _store(self, cell: str, drawn: Draw, reason: str | None) -> int:
        """One transaction for the whole trial. Returns its number."""
        notes = {NOTES: dict(drawn.notes)} if drawn.notes else {}
        told = {DRAWN_BY: drawn.why, **notes, **({} if reason is None else {REFUSED: reason[:500]})}
        state = TrialState.RUNNING if reason is None else TrialState.PRUNED
        return self._add(cell, drawn.configuration, told, state)

    def _add(
        self, cell: str, configuration: Mapping[str, Value], told: Mapping[str, object], state: TrialState,
        value: float | None = None, number: int | None = None,
    ) -> int:
        trial = create_trial(
            state=state, value=value, params=dict(configuration), user_attrs=dict(told),
            distributions={name: self._distributions[cell][name] for name in configuration},
        )
        with self._writing(cell) as history:
            stored = self._storage.add(self._name(cell), trial, number)
            history.add(stored)
        return stored.number

    @contextmanager
    def _writing(self, cell: str) -> Iterator[TrialHistory]:
        """Around one write and its copy in memory. Whatever interrupts it, the copy is read anew."""
        history = self._history(cell)
        del self._histories[cell]
        with self._storage.guarded("{} cannot be written", _REMEDY):
            yield history
        self._histories[cell] = history

    def _name(self, cell: str) -> str:
        return f"{self._study}/{cell}"


def _require_same_space(
    cell: str, there: Mapping[str, BaseDistribution], asked: Mapping[str, BaseDistribution]
) -> None:
    """ConfigError where a setting of the trials in the storage was searched over another kind of range or choices."""
    for name in sorted(there.keys() & asked.keys()):
        try:
            check_distribution_compatibility(there[name], asked[name])
        except ValueError as error:
            raise ConfigError(
                f"search: cell {cell}: {name} was searched as {there[name]}, and would now be as {asked[name]}; give "
                "the study another name"
            ) from error


def _is_same(there: Mapping[str, Value], recorded: Mapping[str, Value]) -> bool:
    """A record keeps numbers as JSON, a database as its own."""
    return {name: str(value) for name, value in there.items()} == {name: str(value) for name, value in recorded.items()}


def _shown(value: Value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
