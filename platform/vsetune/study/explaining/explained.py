"""The search of a study by cell: its trials, its winner, and how much each searched setting matters. No markup."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from vsetune.board.selection import keeps_constraints, usable, winner_of
from vsetune.board.wording import fixed
from vsetune.config.spec.base import Choices, Domain, Range
from vsetune.config.study.cells import repeated_cells, resolve_cells
from vsetune.errors import ConfigError, StorageError
from vsetune.metrics.curves import BestPoint, best_of_curve
from vsetune.records.events import SEARCH_VALUE, StudyRecord
from vsetune.records.state import Attempt, Trial, trials_of
from vsetune.search.importances import Importances, importances_of
from vsetune.study.recorded_studies import study_of

_WORST_SHOWN = 2.0
"""Lowest value of a slice: this multiple of the distance between best and median trial, below the best."""
_ROOM, _LEAST_ROOM = 0.05, 0.5
"""Room above and below the trials: a share of their span, and at least so many points of M-Recall."""
_BINS, _BLOCKS = 8, "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class ExplainedCell:
    """trials: the latest attempt of every trial of its search, in the order in which they started; confirming runs are
    not among them. winner: the trial that represents its search, None if no trial has a result that counts."""

    name: str
    domains: Mapping[str, Domain]
    trials: tuple[Attempt, ...]
    winner: Attempt | None
    importances: Importances

    @property
    def settings(self) -> list[str]:
        """Every searched setting, the most important first; settings without an importance last, in the study's order.
        """
        return [*self.importances.shares, *(name for name in self.domains if name not in self.importances.shares)]

    @property
    def finding(self) -> str:
        """The winner and the number of trials in a sentence."""
        outcomes = Counter(outcome_of(trial) for trial in self.trials)
        count = f"{len(self.trials)} trial{'' if len(self.trials) == 1 else 's'}"
        counts = f"{count} ({', '.join(f'{number} {outcome}' for outcome, number in outcomes.items())})"
        if not self.trials:
            return "No trial yet."
        if self.winner is None:
            return f"No trial has a result that counts; {counts}."
        return f"Winner: {in_words(self.winner)}; {counts}."


@dataclass(frozen=True)
class ExplainedStudy:
    """remark: information that is missing; empty if the study could be read."""

    study: str
    cells: tuple[ExplainedCell, ...]
    remark: str = ""


def explain(record: StudyRecord, attempts: Sequence[Attempt]) -> ExplainedStudy:
    """The search of a study from its stored records.

    A study of another version, or with user components whose code is not here, cannot be read. Its cells are then those
    with trials, and its ranges are what the trials span.
    """
    searches: dict[str, list[Trial]] = {}
    for trial in trials_of(attempts):
        if trial[-1].start.phase == "search":
            searches.setdefault(trial[-1].start.cell, []).append(trial)
    try:
        study = study_of(record)
        cells = repeated_cells(study, resolve_cells(study, where=f"study {record.name}"))
        domains, remark = {cell.name: cell.domains for cell in cells}, ""
    except (ConfigError, StorageError) as error:
        domains = {cell: _seen_domains(trials) for cell, trials in searches.items()}
        reason = str(error).splitlines()[0]
        remark = f"The study cannot be read here ({reason}), so ranges are those of its trials, on linear axes."
    found = (_cell(name, of_cell, searches.get(name, [])) for name, of_cell in domains.items())
    return ExplainedStudy(record.name, tuple(found), remark)


def _cell(name: str, domains: Mapping[str, Domain], search: Sequence[Trial]) -> ExplainedCell:
    trials = tuple(trial[-1] for trial in search)
    level = [
        (trial.start.configuration, trial.summary.get(SEARCH_VALUE, best.m_recall))
        for trial in trials if has_levelled(trial) and (best := best_of(trial)) is not None
    ]
    return ExplainedCell(name, domains, trials, winner_of(search), importances_of(domains, level))


def has_levelled(trial: Attempt) -> bool:
    """Whether its best M-Recall measures its configuration: the trial finished, or patience stopped it because it no
    longer improved. Other rules stop trials that still improve, so their best depends on when they were stopped."""
    return trial.status == "finished" or (trial.status == "pruned" and (trial.error or "").startswith("patience: "))


def _seen_domains(search: Sequence[Trial]) -> dict[str, Domain]:
    values: dict[str, list[Any]] = {}
    for trial in search:
        for name, value in trial[-1].start.configuration.items():
            if name != "seed":
                values.setdefault(name, []).append(value)
    return {name: seen_domain(seen) for name, seen in values.items()}


def seen_domain(values: Iterable[Any]) -> Domain:
    """The range or the choices that the values of a setting span, where its domain is not known. values: at least one.

    Choices are of any kind and number, because another version may allow what this one does not.
    """
    seen = list(values)
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in seen):
        return Range(low=min(seen), high=max(seen), integer=all(isinstance(value, int) for value in seen))
    return Choices.model_construct(choices=list({text_of(value): value for value in seen}.values()))


def best_of(trial: Attempt) -> BestPoint | None:
    """None without a validation, and for a failed trial, whose results do not count."""
    return best_of_curve(trial.curve) if usable(Trial([trial])) else None


def outcome_of(trial: Attempt) -> str:
    """open: running, or interrupted and to be resumed."""
    return trial.status if trial.status in ("finished", "pruned", "failed") else "open"


def text_of(value: Any) -> str:
    """The value as in a study file, floats with six significant digits."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def in_words(trial: Attempt) -> str:
    """A trial in one line, with the reason if it failed or was stopped."""
    best, values = best_of(trial), {key: value for key, value in trial.start.configuration.items() if key != "seed"}
    reached = f"M-Recall {fixed(best.m_recall, 2)} % at epoch {fixed(best.epoch, 2)}" if best else "no result"
    settings = ", ".join(f"{name} {text_of(value)}" for name, value in values.items()) or "nothing searched"
    reason = f" ({trial.error})" if trial.error else ""
    barred = "" if keeps_constraints(trial) else ", breaks a constraint and cannot win"
    return f"{trial.start.trial}: {reached}, {outcome_of(trial)}{reason}{barred}, with {settings}"


def recall_range(trials: Iterable[Attempt]) -> tuple[float, float]:
    """Ends of the axis of M-Recall, from `_WORST_SHOWN` up to the best trial, so that a few collapsed trials do not
    compress the others. All of it without a result."""
    bests = [best.m_recall for trial in trials if (best := best_of(trial)) is not None]
    if not bests:
        return 0.0, 100.0
    lowest = max(min(bests), max(bests) - _WORST_SHOWN * (max(bests) - median(bests)))
    room = max(_ROOM * (max(bests) - lowest), _LEAST_ROOM)
    return lowest - room, max(bests) + room


def place_of(domain: Domain, value: Any) -> float | None:
    """Place of a value along its axis, from 0 to 1; values outside go to the ends. None for a value without a place: a
    text on an axis of numbers, a number up to 0 on a logarithmic axis, or an unknown choice."""
    if isinstance(domain, Choices):
        words = [text_of(choice) for choice in domain.choices]
        return (words.index(text_of(value)) + 0.5) / len(words) if text_of(value) in words else None
    if isinstance(value, str) or not isinstance(value, int | float) or (domain.log and value <= 0):
        return None
    low, high, at = (math.log(each) if domain.log else each for each in (domain.low, domain.high, value))
    return min(1.0, max(0.0, (at - low) / (high - low))) if high > low else 0.5


def sketch(cell: ExplainedCell, name: str) -> str:
    """A slice for the terminal, from one end of the setting to the other: the higher a block, the better the best trial
    there; `x` where trials only failed, `.` where no trial has a result."""
    domain, (low, high) = cell.domains[name], recall_range(cell.trials)
    count = min(_BINS, len(domain.choices)) if isinstance(domain, Choices) else _BINS
    marks, heights = ["."] * count, [-math.inf] * count
    for trial in cell.trials:
        place = place_of(domain, trial.start.configuration[name]) if name in trial.start.configuration else None
        if place is None:
            continue
        at, best = min(int(count * place), count - 1), best_of(trial)
        if best is not None and best.m_recall > heights[at]:
            heights[at] = best.m_recall
            share = max(0.0, (best.m_recall - low) / (high - low))
            marks[at] = _BLOCKS[min(int(len(_BLOCKS) * share), len(_BLOCKS) - 1)]
        elif trial.status == "failed" and marks[at] == ".":
            marks[at] = "x"
    ends = (domain.choices[0], domain.choices[-1]) if isinstance(domain, Choices) else (domain.low, domain.high)
    return f"{text_of(ends[0])} {''.join(marks)} {text_of(ends[1])}"
