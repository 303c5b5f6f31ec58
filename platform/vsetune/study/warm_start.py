"""Warm start of a study from other studies: finished trials of the same kind, and starting points.

A trial counts as one of the cell's own (`told`) if it differs only in its seed from a trial that this study would run:
same network, loss, training, evaluation, data and code. Other trials give starting points (`starts`): their values of
the settings that the cell searches too, matched by full name. Starting points are run here, because their results
elsewhere are not comparable. Every cell gets the same number of each kind, so that no cell has a head start.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vsetune.config.study.cells import Cell, build_trial
from vsetune.config.study.domains import Value, clipped, contains
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import UsageError
from vsetune.metrics.curves import best_of_curve
from vsetune.records.events import AttemptRecord, was_cut_short
from vsetune.records.studies import Studies
from vsetune.report.selection import Trial, trials_of, usable
from vsetune.search.configurations import Lesson
from vsetune.search.objectives import Objective, excess_of
from vsetune.storage.whole_files import read_json, write_json

FILE = "warm_start.json"
_MOST_OF_A_CELL = 3
_NOT_COMPARED = frozenset({"study", "trial", "cell", "seed", "data"})


@dataclass(frozen=True)
class TakenTrial:
    """A trial of another study. source: STUDY/TRIAL. settings: those that the cell searches. curve: (epoch, M-Recall
    in per cent). excess: the share by which it exceeds a limit of this study."""

    source: str
    settings: Mapping[str, Value]
    curve: tuple[tuple[float, float], ...]
    excess: float = 0.0


@dataclass(frozen=True)
class WarmStart:
    """The warm start of one cell. told: whole trials, in the order in which they were run. starts: starting points,
    the best first."""

    told: tuple[TakenTrial, ...] = ()
    starts: tuple[TakenTrial, ...] = ()

    def lessons(self, objective: Objective) -> list[Lesson]:
        """The whole trials in the form in which the sampler receives the cell's own trials."""
        return [
            Lesson(each.source, each.settings, best_of_curve(objective.told(each.curve, each.excess)).m_recall)
            for each in self.told
        ]

    @property
    def tag(self) -> str:
        """One line to record: `told of 12 trials of first; starts from first/vsepp.lmh-c003-s0`."""
        studies = ", ".join(dict.fromkeys(each.source.partition("/")[0] for each in self.told))
        parts = [f"told of {len(self.told)} trials of {studies}"] if self.told else []
        parts += [f"starts from {', '.join(each.source for each in self.starts)}"] if self.starts else []
        return "; ".join(parts) or "nothing taken"


def kept_or_taken(
    study: StudySpec, cells: Sequence[Cell], folder: Path, *, store: Callable[[], Studies], data_fingerprint: str
) -> dict[str, WarmStart]:
    """The warm start by cell: read from the study's folder, or taken now and stored there if the study begins.

    Empty without `search.warm_start`. store: opens the tracking store; called only if the folder has no warm start yet.
    UsageError for a study that the store does not have.
    """
    if not study.search.warm_start:
        return {}
    kept = read_json(folder / FILE)
    if kept is None:
        taken = take(study, cells, _attempts(study, store()), data_fingerprint=data_fingerprint)
        write_json(folder / FILE, {cell: asdict(each) for cell, each in taken.items()}, durable=True)
        return taken
    return {cell: WarmStart(*(_read(plain[key]) for key in ("told", "starts"))) for cell, plain in kept.items()}


def take(
    study: StudySpec, cells: Sequence[Cell], attempts: Sequence[AttemptRecord], *, data_fingerprint: str
) -> dict[str, WarmStart]:
    """The warm start by cell; cells that search no setting have none. attempts: those of the studies to learn from,
    grouped by study."""
    trials = [
        trial for trial in trials_of_each(attempts) if usable(trial) and trial[-1].status == "finished"
        and trial[-1].start.phase == "search" and not was_cut_short(trial[-1].status, trial[-1].error)
    ]
    searched = [cell for cell in cells if cell.domains]
    told = {
        cell.name: [_taken(study, cell, trial) for trial in trials if _is_alike(study, cell, trial, data_fingerprint)]
        for cell in searched
    }
    most_told = min(map(len, told.values()), default=0)
    told = {cell: taken[:most_told] for cell, taken in told.items()}
    starts = {cell.name: _starts(study, cell, _others(trials, told[cell.name])) for cell in searched}
    most_starts = min([*map(len, starts.values()), study.search.start_trials // 2])
    return {
        cell.name: WarmStart(tuple(told[cell.name]), tuple(starts[cell.name][:most_starts])) for cell in searched
    }


def trials_of_each(attempts: Sequence[AttemptRecord]) -> list[Trial]:
    """The trials of several studies. Trials of different studies may share a name. attempts: grouped by study."""
    by_study = itertools.groupby(attempts, key=lambda attempt: attempt.start.study)
    return [trial for _, of_study in by_study for trial in trials_of(list(of_study))]


def lines_of(warm: Mapping[str, WarmStart]) -> list[str]:
    """One line per cell, printed when the study starts."""
    return [f"warm start: {cell}: {each.tag}" for cell, each in warm.items()]


def _attempts(study: StudySpec, store: Studies) -> list[AttemptRecord]:
    found = []
    for name in study.search.warm_start:
        try:
            found += store.attempts(name)
        except UsageError as error:
            raise UsageError(error.problem.at("search.warm_start")) from error
    return found


def _source(trial: Trial) -> str:
    return f"{trial[-1].start.study}/{trial[-1].start.trial}"


def _others(trials: Sequence[Trial], told: Sequence[TakenTrial]) -> list[Trial]:
    sources = {each.source for each in told}
    return [trial for trial in trials if _source(trial) not in sources]


def _taken(study: StudySpec, cell: Cell, trial: Trial) -> TakenTrial:
    last = trial[-1]
    excess = excess_of(study.search.constraints, last.summary)
    return TakenTrial(_source(trial), _shared(cell, last), last.curve, max(0.0, excess))


def _shared(cell: Cell, attempt: AttemptRecord) -> dict[str, Value]:
    """The attempt's values of the settings that the cell searches; values outside the cell's range are left out."""
    return {
        name: clipped(attempt.start.configuration[name], domain) for name, domain in cell.domains.items()
        if name in attempt.start.configuration and contains(domain, attempt.start.configuration[name])
    }


def _is_alike(study: StudySpec, cell: Cell, trial: Trial, data_fingerprint: str) -> bool:
    """Whether this study would run the same trial, apart from its seed."""
    last = trial[-1]
    shared = _shared(cell, last)
    if len(shared) < len(cell.domains) or last.start.protocol.get("data_fingerprint") != data_fingerprint:
        return False
    try:
        own = build_trial(study, cell, shared, trial="alike", seed=last.start.seed).to_plain()
    except ValidationError:
        return False
    there = dict(last.start.resolved)
    return all(own.get(key) == there.get(key) for key in (own.keys() | there.keys()) - _NOT_COMPARED)


def _starts(study: StudySpec, cell: Cell, trials: Iterable[Trial]) -> list[TakenTrial]:
    """Trials that share a setting with the cell: the best trial of every other cell, then the second best of each, ...

    Cells with the same loss come first, then cells with the same network. Settings that repeat are left out.
    """
    by_cell: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        by_cell.setdefault((trial[-1].start.study, trial[-1].start.cell), []).append(trial)

    def distance(group: list[Trial]) -> tuple[bool, bool]:
        start = group[0][-1].start
        return start.loss != cell.loss_name, start.network != cell.network_name

    ranked = [
        sorted(group, key=lambda trial: -best_of_curve(trial[-1].curve).m_recall)[:_MOST_OF_A_CELL]
        for group in sorted(by_cell.values(), key=distance)
    ]
    found: list[TakenTrial] = []
    for trial in (trial for row in itertools.zip_longest(*ranked) for trial in row if trial is not None):
        taken = _taken(study, cell, trial)
        if taken.settings and all(taken.settings != each.settings for each in found):
            found.append(taken)
    return found


def _read(plain: Sequence[Mapping[str, Any]]) -> tuple[TakenTrial, ...]:
    return tuple(
        TakenTrial(
            each["source"], each["settings"], tuple((epoch, m_recall) for epoch, m_recall in each["curve"]),
            each["excess"],
        ) for each in plain
    )
