"""Which configurations of a cell to try, and what the search learns from them.

Each cell is searched separately: it gets the same number of configurations as every other and its own history, so no
loss is tried more often because another one started slowly (docs/decisions/0042).
"""

from __future__ import annotations

import copy
import itertools
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from optuna.distributions import (
    BaseDistribution,
    check_distribution_compatibility,
    distribution_to_json,
    json_to_distribution,
)
from optuna.trial import FrozenTrial, TrialState

from vsetune.config.study.cells import Cell
from vsetune.config.study.domains import Value
from vsetune.config.study.study_spec import SearchSpec
from vsetune.errors import ConfigError, Problem
from vsetune.metrics.curves import best_of_curve
from vsetune.search.drawing import CellDrawing
from vsetune.search.sampling.sampler import Draw, distributions_of
from vsetune.search.space_gaps import gaps_of
from vsetune.search.trial_history import DRAWN_BY, REFUSED, TrialHistory

logger = logging.getLogger(__name__)
logging.getLogger("optuna").setLevel(logging.ERROR)

Outcome = Literal["finished", "pruned", "failed"]
"""failed: the trial's numbers were not finite. Failures that do not depend on the configuration are not reported."""

Refusal = Callable[[str, Mapping[str, Value]], str | None]
"""(cell, configuration) -> why no trial can be made of it, in one line, or None."""

_MOST_REFUSED = 100
_STATES = {"running": TrialState.RUNNING, "refused": TrialState.PRUNED}


@dataclass(frozen=True)
class Sampled:
    """A configuration as it is stored: number `number` of its cell. Refused configurations are numbered too.

    distributions: of its settings, in Optuna's JSON. attributes: which sampler chose it, why it was refused.
    """

    cell: str
    number: int
    state: Literal["running", "refused"]
    configuration: Mapping[str, Any]
    distributions: Mapping[str, str]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DeadEnd:
    """Why a cell draws no valid configuration, in one line. number: of the last draw that was refused."""

    number: int
    reason: Problem


@dataclass(frozen=True)
class Suggestion:
    """Configuration `number` of a cell (from 0, with gaps where draws were refused). is_open: its outcome is not known
    yet.

    drawn_by: which sampler chose it and from which history, in one line; empty for one of an earlier version.
    """

    cell: str
    number: int
    configuration: Mapping[str, Value]
    is_open: bool
    drawn_by: str = ""


class ConfigurationSearch:
    """Samples configurations and learns from their outcomes. State is in memory: every sampled configuration is passed
    to `keep`, and the next process starts from these. Not thread-safe.
    """

    def __init__(
        self, cells: Sequence[Cell], spec: SearchSpec, *, sampled: Iterable[Sampled] = (),
        keep: Callable[[Sampled], None] = lambda sampled: None, refuses: Refusal | None = None,
    ) -> None:
        """sampled: configurations stored by earlier processes, in order. keep: called with every configuration before
        it is suggested. refuses: called with every draw before it is suggested; None accepts all. ConfigError where
        `sampled` belongs to another search space.
        """
        self._keep, self._refuses = keep, refuses
        self._spec, self._cells = spec, {cell.name: cell for cell in cells}
        self._distributions = {cell.name: distributions_of(cell) for cell in cells}
        self._drawings = {cell.name: CellDrawing(spec, cell) for cell in cells}
        self._histories = {cell.name: TrialHistory(applying=cell.applying) for cell in cells}
        for each in sampled:
            if each.cell in self._histories:
                trial = _trial_of(each)
                _require_same_space(each.cell, trial.distributions, self._distributions[each.cell])
                self._histories[each.cell].add(trial)

    def suggestions(self, cell: str) -> list[Suggestion]:
        """Every configuration suggested so far, in order; refused draws are left out."""
        return [
            Suggestion(
                cell, trial.number, dict(trial.params), is_open=not trial.state.is_finished(),
                drawn_by=str(trial.user_attrs.get(DRAWN_BY, "")),
            )
            for trial in self._histories[cell] if REFUSED not in trial.user_attrs
        ]

    def is_exhausted(self, cell: str) -> bool:
        """Whether every configuration of a finite space has been sampled, so that `ask` has none left."""
        return self._drawings[cell].left(self._histories[cell]) == 0

    def ask(self, cell: str) -> Suggestion | None:
        """The next configuration of a cell, different from all earlier ones; None when the space is exhausted. The same
        history and seed give the same configuration.

        A draw for which `refuses` gives a reason is recorded with the reason, reported to the sampler as an
        unsuccessful trial, and replaced by the next draw. ConfigError after 100 such draws in a row, and when every
        configuration of a finite space was refused; `dead_end` gives the same reason later.
        """
        drawing, refuses = self._drawings[cell], self._refuses
        for _ in range(_MOST_REFUSED):
            history = self._histories[cell]
            if not history and (gaps := gaps_of(self._spec, self._cells[cell])):
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
            raise ConfigError(dead_end.reason.at("search"))
        return None

    def dead_end(self, cell: str) -> DeadEnd | None:
        """Set once 100 draws in a row, or all configurations of a finite space, were refused; None before."""
        tried = self._histories[cell]
        refused = list(itertools.takewhile(lambda trial: REFUSED in trial.user_attrs, reversed(tried)))
        if len(refused) >= _MOST_REFUSED:
            which = f"{len(refused)} draws in a row"
        elif refused and len(refused) == len(tried) and self.is_exhausted(cell):
            which = f"all {self._histories[cell].distinct} configurations of its space"
        else:
            return None
        last = refused[0]
        values = ", ".join(f"{name} {_shown(value)}" for name, value in last.params.items())
        why = str(last.user_attrs[REFUSED]).removeprefix(f"cell {cell}: ")
        return DeadEnd(last.number, Problem.of(
            "VSE-E001", "cell {cell}: {which} were refused, the last ({values}) because {reason}; make the search "
            "range and what the spec accepts agree (`losses check` and `networks check` try values inside ranges)",
            cell=cell, which=which, values=values, reason=why,
        ))

    def tell(self, cell: str, number: int, outcome: Outcome, *, curve: Sequence[tuple[float, float]]) -> None:
        """Record the outcome of a configuration. curve: (epoch, M-Recall in per cent) of every validation of its trial.

        finished: counts with the best value of its curve. pruned: the sampler ranks it by how far it got. failed, or
        finished without a validation: counts like the worst pruned trial, whatever it had reached, and for a Gaussian
        process like the median of the others. A repeated call changes nothing.
        """
        trial = self._histories[cell].numbered(number)
        assert trial is not None, f"{cell}: configuration {number} was sampled"
        if trial.state.is_finished():
            return
        points = {} if outcome == "failed" else {round(1000 * epoch): m_recall for epoch, m_recall in reversed(curve)}
        is_complete = outcome == "finished" and bool(curve)
        state = TrialState.COMPLETE if is_complete else TrialState.PRUNED
        best = best_of_curve(curve).m_recall if is_complete else None
        self._histories[cell].update(_ended(trial, state, best, points))

    def _store(self, cell: str, drawn: Draw, reason: str | None) -> int:
        """Returns the number of the stored configuration."""
        attributes = {DRAWN_BY: drawn.why, **({} if reason is None else {REFUSED: reason[:500]})}
        return self._add(cell, "running" if reason is None else "refused", drawn.configuration, attributes)

    def _add(
        self, cell: str, state: Literal["running", "refused"], configuration: Mapping[str, Value],
        attributes: Mapping[str, object],
    ) -> int:
        history = self._histories[cell]
        distributions = {name: distribution_to_json(self._distributions[cell][name]) for name in configuration}
        number = history[-1].number + 1 if history else 0
        sampled = Sampled(cell, number, state, dict(configuration), distributions, dict(attributes))
        self._keep(sampled)
        history.add(_trial_of(sampled))
        return sampled.number


def _trial_of(sampled: Sampled) -> FrozenTrial:
    is_ended, now = sampled.state != "running", datetime.now()
    return FrozenTrial(
        number=sampled.number, trial_id=sampled.number, state=_STATES[sampled.state], value=None,
        datetime_start=now, datetime_complete=now if is_ended else None, params=dict(sampled.configuration),
        distributions={name: json_to_distribution(text) for name, text in sampled.distributions.items()},
        user_attrs=dict(sampled.attributes), system_attrs={}, intermediate_values={},
    )


def _ended(trial: FrozenTrial, state: TrialState, value: float | None, points: Mapping[int, float]) -> FrozenTrial:
    """A copy with its outcome, as `optuna.Study.tell` sets it: the value of a pruned trial is its last point."""
    ended = copy.copy(trial)
    ended.intermediate_values = dict(sorted(points.items()))
    last = next(reversed(ended.intermediate_values.values()), math.nan)
    if value is None and state == TrialState.PRUNED and not math.isnan(last):
        value = last
    ended.state, ended.values = state, None if value is None else [float(value)]
    ended.datetime_complete = datetime.now()
    return ended


def _require_same_space(
    cell: str, there: Mapping[str, BaseDistribution], asked: Mapping[str, BaseDistribution]
) -> None:
    """ConfigError where a setting of the stored trials was searched over another kind of range or other choices."""
    for name in sorted(there.keys() & asked.keys()):
        try:
            check_distribution_compatibility(there[name], asked[name])
        except ValueError as error:
            problem = Problem.of(
                "VSE-E002", "search: cell {cell}: {setting} was searched as {there}, and would now be as {here}; give "
                "the study another name", cell=cell, setting=name, there=there[name], here=asked[name],
            )
            raise ConfigError(problem) from error


def _shown(value: Value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
