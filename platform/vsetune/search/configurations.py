"""Which configurations of a cell to try. The log's state is its only memory: what was sampled, and how it ended.

Each cell is searched separately: it gets the same number of configurations as every other and its own history, so no
loss is tried more often because another one started slowly (docs/decisions/0042).
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from optuna.distributions import check_distribution_compatibility, distribution_to_json

from vsetune.config.study.cells import Cell
from vsetune.config.study.domains import Value
from vsetune.config.study.study_spec import SearchSpec
from vsetune.errors import ConfigError, Problem
from vsetune.records.events import Drawn
from vsetune.records.state import Attempt
from vsetune.records.writer import StudyWriter
from vsetune.search.drawing import CellDrawing
from vsetune.search.objectives import BEST_M_RECALL, Objective
from vsetune.search.sampling.sampler import distributions_of
from vsetune.search.space_gaps import gaps_of
from vsetune.search.trial_history import DRAWN_BY, REFUSED, TrialHistory, distribution_in, optuna_trial

logger = logging.getLogger(__name__)
logging.getLogger("optuna").setLevel(logging.ERROR)

Refusal = Callable[[str, Mapping[str, Value]], str | None]
"""(cell, configuration) -> why no trial can be made of it, in one line, or None."""

_MOST_REFUSED = 100


class ConfigurationSearch:
    """Samples configurations into the log of a study. The same log and seed give the same configurations. Not
    thread-safe."""

    def __init__(
        self, cells: Sequence[Cell], spec: SearchSpec, writer: StudyWriter, *, refuses: Refusal | None = None
    ) -> None:
        """refuses: called with every configuration before it is suggested; None accepts all. ConfigError where the log
        has configurations of another search space."""
        self._spec, self._writer, self._refuses = spec, writer, refuses
        self._cells = {cell.name: cell for cell in cells}
        self._drawings = {cell.name: CellDrawing(spec, cell) for cell in cells}
        for cell in cells:
            _require_same_space(cell, self.drawn(cell.name))

    def drawn(self, cell: str) -> list[Drawn]:
        """Every configuration sampled for a cell, in order, refused ones included."""
        return [each for each in self._writer.state.draws if each.cell == cell and each.state != "taught"]

    def is_exhausted(self, cell: str) -> bool:
        """Whether every configuration of a finite space has been sampled, so that `ask` has none left."""
        return self._drawings[cell].left(self.history(cell)) == 0

    def history(
        self, cell: str, objective: Objective = BEST_M_RECALL, ended: Mapping[int, Attempt] | None = None
    ) -> TrialHistory:
        """The trials of a cell as samplers see them. ended: by number, the attempt with which a trial ended; trials
        that it lacks are running."""
        trials = (optuna_trial(each, (ended or {}).get(each.number), objective) for each in self.drawn(cell))
        return TrialHistory(trials, applying=self._cells[cell].applying)

    def ask(self, cell: str, history: TrialHistory) -> Drawn | None:
        """The next configuration of a cell, different from all earlier ones. history: of its trials; grows by refused
        configurations.

        A configuration for which `refuses` gives a reason is recorded with the reason, counts for the sampler as an
        unsuccessful trial, and is replaced by the next. None after 100 of these in a row, and when the space is
        exhausted; `why_none` tells them apart.
        """
        if not history and (gaps := gaps_of(self._spec, self._cells[cell])):
            logger.warning("%s", gaps)
        for _ in range(_MOST_REFUSED):
            sampled = self._drawings[cell].next(history)
            if sampled is None:
                return None
            configuration, why = sampled
            reason = self._refuses(cell, configuration) if self._refuses is not None else None
            drawn = Drawn(
                cell, history[-1].number + 1 if history else 0, "running" if reason is None else "refused",
                configuration, self._distributions(cell, configuration),
                {DRAWN_BY: why} | ({} if reason is None else {REFUSED: reason[:500]}), at=time.time(),
            )
            self._writer.draw(drawn)
            if reason is None:
                logger.info("search: %s: configuration %d by %s", cell, drawn.number, why)
                return drawn
            history.add(optuna_trial(drawn, None, BEST_M_RECALL))
        return None

    def why_none(self, cell: str) -> Problem | None:
        """Why there is no valid configuration: 100 in a row, or all of a finite space, were refused; else None."""
        drawn = self.drawn(cell)
        refused = list(itertools.takewhile(lambda each: each.state == "refused", reversed(drawn)))
        if len(refused) >= _MOST_REFUSED:
            which = f"{len(refused)} draws in a row"
        elif refused and len(refused) == len(drawn) and self.is_exhausted(cell):
            which = f"all {self.history(cell).distinct} configurations of its space"
        else:
            return None
        values = ", ".join(f"{name} {_shown(value)}" for name, value in refused[0].configuration.items())
        why = str(refused[0].attributes[REFUSED]).removeprefix(f"cell {cell}: ")
        return Problem.of(
            "VSE-E001", "cell {cell}: {which} were refused, the last ({values}) because {reason}; make the search "
            "range and what the spec accepts agree (`losses check` and `networks check` try values inside ranges)",
            cell=cell, which=which, values=values, reason=why,
        )

    def _distributions(self, cell: str, configuration: Mapping[str, Value]) -> dict[str, str]:
        known = distributions_of(self._cells[cell])
        return {name: distribution_to_json(known[name]) for name in configuration}


def _require_same_space(cell: Cell, drawn: Sequence[Drawn]) -> None:
    """ConfigError where a setting of the log's trials was searched over another kind of range or other choices."""
    here = distributions_of(cell)
    for name, text in sorted({(name, text) for each in drawn for name, text in each.distributions.items()}):
        if name not in here:
            continue
        there = distribution_in(text)
        try:
            check_distribution_compatibility(there, here[name])
        except ValueError as error:
            problem = Problem.of(
                "VSE-E002", "search: cell {cell}: {setting} was searched as {there}, and would now be as {here}; give "
                "the study another name", cell=cell.name, setting=name, there=there, here=here[name],
            )
            raise ConfigError(problem) from error


def _shown(value: Value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
