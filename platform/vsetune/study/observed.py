"""View of a study from the tracking store: progress, places and cost. Reads only; does not use Ray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vsetune.board.rows import Cost
from vsetune.board.selection import cost_of, why_cannot_draw
from vsetune.config.study.cells import Cell, repeated_cells, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import ConfigError
from vsetune.records.events import StudyRecord
from vsetune.records.state import Attempt, Trial
from vsetune.records.studies import Studies
from vsetune.study.cell_budget import CellBudget
from vsetune.study.recorded_studies import spec_of

PROMISED = "promised_trials"
"""Tag of a study: how many trials it asks for. It serves readers that do not have the study's components."""
_DIED = "the process that ran the study died; --resume goes on with the trial"


@dataclass(frozen=True)
class TrialView:
    """A trial by its latest attempt. status: of that attempt; the next run continues one that is `killed`.

    epoch: reached so far. epochs: to train, None if unknown. m_recall: the best on its curve, per cent. seen: time of
    its last event, seconds since 1970. usd: None if no attempt has a price.
    """

    trial: str
    cell: str
    status: str
    attempts: int
    epoch: float
    epochs: float | None
    m_recall: float | None
    place: str
    seen: float
    device_seconds: float
    usd: float | None
    error: str | None


@dataclass(frozen=True)
class StudyView:
    """A study and its trials. seen: time of its last event, in seconds since 1970. stop_asked: the last request to
    stop, None if there never was one. promised: how many trials the study asks for; None if an earlier version recorded
    it, its file cannot be read here (it names third-party components) and it has not ended. cannot_draw: by cell, why
    its search found no further valid configuration.
    """

    name: str
    status: str
    seen: float
    stop_asked: str | None
    trials: Sequence[TrialView]
    promised: int | None
    cost: Cost
    cannot_draw: Mapping[str, str]

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of trials by status."""
        return Counter(trial.status for trial in self.trials)

    @property
    def closed(self) -> int:
        """Number of trials that have ended: finished, pruned or failed."""
        return sum(count for status, count in self.counts.items() if status in ("finished", "pruned", "failed"))


def observe(studies: Studies, record: StudyRecord) -> StudyView:
    """The view of a study, from its log. StorageError when the home cannot be read."""
    status, trials = studies.status(record.name), studies.trials(record.name)
    promised = _promised(record)
    if promised is None and status in ("finished", "failed"):
        promised = len(trials)
    elif promised is not None:
        promised = max(promised, len(trials))  # `study confirm` may have asked for more
    return StudyView(
        record.name, status, studies.seen(record.name), studies.stop_asked(record.name),
        [_view(trial, is_running=status == "running") for trial in trials], promised, cost_of(trials),
        _cells_that_cannot_draw(trials),
    )


def _cells_that_cannot_draw(trials: Sequence[Trial]) -> dict[str, str]:
    by_cell: dict[str, list[Trial]] = {}
    for trial in trials:
        by_cell.setdefault(trial[-1].start.cell, []).append(trial)
    return {cell: why for cell, of_cell in by_cell.items() if (why := why_cannot_draw(of_cell)) is not None}


def promised_trials(study: StudySpec, cells: Sequence[Cell]) -> int:
    """How many trials a study asks for: of every cell the searched configurations, and its winner with other seeds."""
    return sum(
        CellBudget.of(study, cell).room(0) + len(cell.seeds) - 1 for cell in repeated_cells(study, cells)
    )


def _promised(record: StudyRecord) -> int | None:
    if PROMISED in record.tags:
        return int(record.tags[PROMISED])
    try:
        study = spec_of(record)
        return promised_trials(study, resolve_cells(study, where=record.name))
    except ConfigError:
        return None


def _view(trial: Trial, *, is_running: bool) -> TrialView:
    last = trial[-1]
    cost = cost_of([trial])
    curve = next((attempt.curve for attempt in reversed(trial) if attempt.curve), ())
    is_dead = last.status == "running" and not is_running
    return TrialView(
        last.start.trial, last.start.cell, "killed" if is_dead else last.status, len(trial),
        curve[-1][0] if curve else 0.0, _length(last), max((m_recall for _, m_recall in curve), default=None),
        _place(last.start.environment), last.seen, cost.device_seconds, cost.usd,
        _DIED if is_dead else last.error,
    )


def _length(attempt: Attempt) -> float | None:
    training: Any = attempt.start.resolved.get("training")
    epochs = training.get("epochs") if isinstance(training, Mapping) else None
    return float(epochs) if isinstance(epochs, int | float) else None


def _place(environment: Mapping[str, str]) -> str:
    """The node of an attempt, if recorded; else its device."""
    names = [environment[key] for key in ("node_type", "node") if environment.get(key)]
    return " ".join(names) or environment.get("device_name") or environment.get("device", "")
