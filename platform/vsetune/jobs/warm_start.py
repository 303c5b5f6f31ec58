"""What the search of a study is told of other studies: finished trials of the same kind, and where to start.

A trial counts as one of the cell's own (`told`) where nothing but its seed differs from what this study would run:
network, loss, training, evaluation, data and code. Of other trials the settings that the cell searches too, by their
full names, are taken as points to start from (`starts`), and tried here: what they came to elsewhere says little.
Every cell gets the same number of either, since a head start of one would decide the comparison.
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
from vsetune.files.whole_files import read_json, write_json
from vsetune.leaderboard.selection import Trial, trials_of, usable
from vsetune.metrics.curves import best_of_curve
from vsetune.records.attempts import AttemptRecord, was_cut_short
from vsetune.records.studies import Studies
from vsetune.search.configurations import Lesson
from vsetune.search.objectives import Objective, excess_of

FILE = "warm_start.json"
_MOST_OF_A_CELL = 3
_NOT_COMPARED = frozenset({"study", "trial", "cell", "seed", "data"})


@dataclass(frozen=True)
class TakenTrial:
    """source: STUDY/TRIAL. settings: those that the cell searches. curve: (epoch, M-Recall in per cent). excess: by
    what share it is over a limit of this study."""

    source: str
    settings: Mapping[str, Value]
    curve: tuple[tuple[float, float], ...]
    excess: float = 0.0


@dataclass(frozen=True)
class WarmStart:
    """Of one cell. told: whole trials, in the order in which they were run. starts: the best first."""

    told: tuple[TakenTrial, ...] = ()
    starts: tuple[TakenTrial, ...] = ()

    def lessons(self, objective: Objective) -> list[Lesson]:
        """The whole trials as the sampler hears of its own."""
        return [
            Lesson(each.source, each.settings, best_of_curve(objective.told(each.curve, each.excess)).m_recall)
            for each in self.told
        ]

    @property
    def tag(self) -> str:
        """`told of 12 trials of first; starts from first/vsepp.lmh-c003-s0`."""
        studies = ", ".join(dict.fromkeys(each.source.partition("/")[0] for each in self.told))
        parts = [f"told of {len(self.told)} trials of {studies}"] if self.told else []
        parts += [f"starts from {', '.join(each.source for each in self.starts)}"] if self.starts else []
        return "; ".join(parts) or "nothing taken"


def kept_or_taken(
    study: StudySpec, cells: Sequence[Cell], folder: Path, *, store: Callable[[], Studies], data_fingerprint: str
) -> dict[str, WarmStart]:
    """What the study took when it began, kept in its folder; taken now where it begins. Empty where it takes nothing.

    store: opens the tracking store, for the first time. UsageError for a study that the store does not have.
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
    """attempts: of the studies to learn from, study by study. By cell; those that search nothing have none."""
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
    """Trials of several studies, which may have the same names."""
    by_study = itertools.groupby(attempts, key=lambda attempt: attempt.start.study)
    return [trial for _, of_study in by_study for trial in trials_of(list(of_study))]


def lines_of(warm: Mapping[str, WarmStart]) -> list[str]:
    """One for every cell, for whoever starts the study."""
    return [f"warm start: {cell}: {each.tag}" for cell, each in warm.items()]


def _attempts(study: StudySpec, store: Studies) -> list[AttemptRecord]:
    found = []
    for name in study.search.warm_start:
        try:
            found += store.attempts(name)
        except UsageError as error:
            raise UsageError(f"search.warm_start: {error}") from error
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
    """What it has of the settings that the cell searches, where the cell's range has the value."""
    return {
        name: clipped(attempt.start.configuration[name], domain) for name, domain in cell.domains.items()
        if name in attempt.start.configuration and contains(domain, attempt.start.configuration[name])
    }


def _is_alike(study: StudySpec, cell: Cell, trial: Trial, data_fingerprint: str) -> bool:
    """Whether this study would run the same, but for its seed."""
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
    """The best of every cell that shares a setting, then the second of each, ...: its own loss and network first."""
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
