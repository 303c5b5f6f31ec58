"""Which configurations of a cell to try: one Optuna study per cell, in one durable storage.

Cells are searched separately on purpose: each gets the same number of configurations and its own history, so no
loss is tried more often because another one started slowly (docs/decisions/0002).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from optuna.trial import FrozenTrial, TrialState, create_trial

from vsetune.config.study.cells import Cell
from vsetune.config.study.study_spec import SearchSpec
from vsetune.errors import ConfigError, StorageError
from vsetune.metrics.curves import best_of_curve
from vsetune.search.drawing import REFUSED, TAUGHT, Value, distributions_of, draw, is_whole
from vsetune.search.memory_trials import MemoryTrials
from vsetune.search.trial_storage import SearchStorage

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
class Suggestion:
    """Configuration `number` (from 0, with gaps where draws were refused) of a cell. is_open: not told yet."""

    cell: str
    number: int
    configuration: Mapping[str, Value]
    is_open: bool


class ConfigurationSearch:
    """Asks for configurations and is told how they went; survives `kill -9` because every call is stored at once.

    Every method raises StorageError, in one line and within seconds, when the storage is locked, full or gone; nothing
    is lost by it and the same call works once the storage does. Not thread-safe; one process per study may write.
    """

    def __init__(
        self, study: str, cells: list[Cell], spec: SearchSpec, *, storage: str | None, refuses: Refusal | None = None
    ) -> None:
        """storage: an Optuna storage URL; None keeps all in memory, for a search that ends with this process.
        refuses: asked of every draw before it is suggested; None accepts all.
        """
        self._spec = spec
        self._cells = {cell.name: cell for cell in cells}
        self._refuses = refuses
        names = [f"{study}/{cell.name}" for cell in cells]
        self._storage = MemoryTrials(studies=names) if storage is None else SearchStorage(storage, studies=names)
        self._starts: dict[str, Sequence[Mapping[str, Value]]] = {}
        self._studies = {cell.name: self._storage.studies[f"{study}/{cell.name}"] for cell in cells}

    def suggestions(self, cell: str) -> list[Suggestion]:
        """Every configuration asked so far, in order; refused draws are left out."""
        return [
            Suggestion(cell, trial.number, dict(trial.params), is_open=not trial.state.is_finished())
            for trial in self._history(cell) if not trial.user_attrs.keys() & {REFUSED, TAUGHT}
        ]

    def teach(
        self, cell: str, lessons: Sequence[Lesson], starts: Sequence[Mapping[str, Value]] = ()
    ) -> None:
        """What other studies know. Call it in every process before the first `ask`; lessons are stored once.

        lessons: their configurations have every setting of the cell, in its ranges; they are in the history as if they
        had been drawn here. starts: settings that the configurations after the papers' defaults have in place of those
        drawn, one after another.
        """
        self._starts[cell] = starts
        known = {trial.user_attrs.get(TAUGHT) for trial in self._history(cell)}
        distributions = distributions_of(self._cells[cell])
        for lesson in lessons:
            if lesson.source in known:
                continue
            trial = create_trial(
                state=TrialState.COMPLETE, value=lesson.value, params=dict(lesson.configuration),
                distributions=distributions, user_attrs={TAUGHT: lesson.source},
            )
            with self._storage.guarded("{} cannot be written", _REMEDY):
                self._storage.check_writable()
                self._studies[cell].add_trial(trial)

    def ask(self, cell: str) -> Suggestion:
        """The next configuration of a cell. The same history and seed give the same configuration.

        It is in the storage whole or, if the process dies, not at all. A draw that `refuses` has a reason against is
        recorded with it, told to the sampler as one that led nowhere, and replaced by the next draw. ConfigError after
        100 such draws in a row.
        """
        reason: str | None = None
        for _ in range(_MOST_REFUSED):
            drawn = draw(self._spec, self._cells[cell], self._history(cell))
            configuration = {**drawn, **self._start(cell)}
            reason = self._refuses(cell, configuration) if self._refuses is not None else None
            number = self._store(cell, configuration, reason)
            if reason is None:
                return Suggestion(cell, number, configuration, is_open=True)
        raise ConfigError(
            f"search: cell {cell}: {_MOST_REFUSED} draws in a row make no valid trial, the last because {reason}; "
            "narrow the ranges under `search`"
        )

    def tell(self, cell: str, number: int, outcome: Outcome, *, curve: Sequence[tuple[float, float]]) -> None:
        """How a configuration went. curve: (epoch, M-Recall in per cent) of every validation of its trial.

        finished: with the best of its curve. pruned: the sampler ranks it by how far it got. failed, and finished
        without a validation: like the worst of the pruned, whatever it had reached, so that the sampler keeps
        away from there. Telling twice changes nothing; a tell cut short can be repeated.
        """
        trial = next((trial for trial in self._history(cell) if trial.number == number), None)
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
        value = best_of_curve(curve).m_recall if is_complete else None
        with self._storage.guarded("{} cannot be written", _REMEDY):
            for step in sorted(points.keys() - trial.intermediate_values.keys()):
                self._storage.backend.set_trial_intermediate_value(trial._trial_id, step, points[step])
            self._studies[cell].tell(number, value, state=state, skip_if_finished=True)

    def _start(self, cell: str) -> Mapping[str, Value]:
        """What the next configuration takes over from another study; nothing for the papers' defaults."""
        starts = self._starts.get(cell, ())
        own = sum(not trial.user_attrs.keys() & {REFUSED, TAUGHT} for trial in self._history(cell)) if starts else 0
        place = own - self._spec.include_defaults
        return starts[place] if 0 <= place < len(starts) else {}

    def _history(self, cell: str) -> list[FrozenTrial]:
        """Every whole trial of a cell, refused draws included, in order."""
        with self._storage.guarded("{} cannot be read", _REMEDY):
            trials = self._studies[cell].get_trials(deepcopy=False)
        return [trial for trial in trials if is_whole(trial, self._cells[cell].domains)]

    def _store(self, cell: str, configuration: Mapping[str, Value], reason: str | None) -> int:
        """One transaction for the whole trial. Returns its number."""
        trial = create_trial(
            state=TrialState.RUNNING if reason is None else TrialState.PRUNED, params=dict(configuration),
            distributions=distributions_of(self._cells[cell]),
            user_attrs={} if reason is None else {REFUSED: reason[:500]},
        )
        with self._storage.guarded("{} cannot be written", _REMEDY):
            self._storage.check_writable()
            self._studies[cell].add_trial(trial)
            return self._studies[cell].get_trials(deepcopy=False)[-1].number
