"""The search of a study by cell: its trials, their cost, and the importance of settings. No markup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from vsetune.config.spec.base import Choices, Domain, Range
from vsetune.config.study.cells import Cell, repeated_cells, resolve_cells
from vsetune.config.study.study_spec import ConstraintSpec, StudySpec
from vsetune.errors import ConfigError, StorageError
from vsetune.metrics.curves import best_of_curve
from vsetune.records.events import SEARCH_VALUE, AttemptRecord, StudyRecord
from vsetune.report.rows import RangeEnd
from vsetune.report.search_budgets import SearchBudget
from vsetune.report.selection import Trial, by_configuration, configurations_of, cost_of, trials_of, winner_of
from vsetune.search.importances import Importances, importances_of
from vsetune.search.objectives import broken_limits
from vsetune.study.cell_budget import epochs_of_cell
from vsetune.study.range_ends import range_ends
from vsetune.study.recorded_studies import study_of

Outcome = Literal["finished", "stopped", "failed", "open"]
"""stopped: early, by a rule (`pruned` in the store). open: running, or interrupted and to be resumed."""

OUTCOMES: tuple[Outcome, ...] = ("finished", "stopped", "failed", "open")
_OUTCOMES: Mapping[str, Outcome] = {"finished": "finished", "pruned": "stopped", "failed": "failed"}


@dataclass(frozen=True)
class TriedTrial:
    """A trial of a search, by its latest attempt.

    curve: (epoch, M-Recall in per cent). best, best_epoch: None without a validation, and for a failed trial, whose
    results do not count. epochs: charged to the budget; lost: epochs lost to crashes and trained again, not charged.
    device_seconds: of all its attempts. reason: why it ended, one line of the store; empty where none is recorded.
    value: the value that the search maximises, by default `best`. breaks: the constraints that it violates, in words.
    """

    name: str
    configuration: Mapping[str, Any]
    outcome: Outcome
    curve: tuple[tuple[float, float], ...]
    best: float | None
    best_epoch: float | None
    epochs: float
    lost: float
    device_seconds: float
    reason: str
    value: float | None = None
    breaks: tuple[str, ...] = ()

    @property
    def rule(self) -> str:
        """The part of the reason before the first colon: for a stopped trial, the rule that stopped it."""
        return self.reason.partition(": ")[0] if ": " in self.reason else ""


def searches_of(attempts: Sequence[AttemptRecord]) -> dict[str, list[Trial]]:
    """The trials of the search by cell, in the order in which they started, without confirming runs."""
    found: dict[str, list[Trial]] = {}
    for trial in trials_of(attempts):
        if trial[-1].start.phase == "search":
            found.setdefault(trial[-1].start.cell, []).append(trial)
    return found


def tried(trial: Trial, constraints: ConstraintSpec | None = None) -> TriedTrial:
    """All attempts of a trial as one. constraints: of the study."""
    last, cost = trial[-1], cost_of([trial])
    outcome = _OUTCOMES.get(last.status, "open")
    curve = next((attempt.curve for attempt in reversed(trial) if attempt.curve), ())
    best = best_of_curve(curve) if curve and outcome != "failed" else None
    return TriedTrial(
        last.start.trial, last.start.configuration, outcome, curve, best.m_recall if best else None,
        best.epoch if best else None, cost.budget_epochs, cost.wasted_epochs, cost.device_seconds,
        last.error or "", last.summary.get(SEARCH_VALUE, best.m_recall) if best else None,
        tuple(broken_limits(constraints, last.summary)) if constraints is not None else (),
    )


_MOST_EXAMPLES = 3
_NO_REASON = "no reason recorded"


@dataclass(frozen=True)
class Account:
    """Use of the budget of a cell's search. budget: None where it is not known.

    epochs, trials: by outcome. lost: epochs lost to crashes and trained again, not charged. device_seconds: of all
    trials.
    """

    budget: SearchBudget | None
    epochs: Mapping[Outcome, float]
    trials: Mapping[Outcome, int]
    lost: float
    device_seconds: float

    @property
    def spent(self) -> float:
        return sum(self.epochs.values())

    @property
    def given(self) -> float | None:
        return None if self.budget is None else self.budget.epochs

    @property
    def left(self) -> float | None:
        return None if self.budget is None else self.budget.left


@dataclass(frozen=True)
class Ending:
    """Trials that ended the same way. kind: the rule that stopped them or "other", "errors" of failed trials,
    "interruptions" of open ones, "no reason recorded" of trials without a reason.

    epoch: median of their last validations. examples: (trial, reason) for up to three different reasons.
    """

    outcome: Outcome
    kind: str
    count: int
    epoch: float
    examples: tuple[tuple[str, str], ...]


def account_of(trials: Sequence[TriedTrial], space: SearchSpace) -> Account:
    seconds = sum(trial.device_seconds for trial in trials)
    budget = None
    if space.epochs is not None and space.epochs_of_a_trial is not None:
        whole = space.epochs_of_a_trial
        budget = SearchBudget(
            space.epochs, whole, sum(trial.epochs for trial in trials),
            sum(max(0.0, whole - trial.epochs) for trial in trials if trial.outcome == "failed"),
            all(trial.outcome != "open" for trial in trials),
            space.device_seconds is not None and seconds >= space.device_seconds,
        )
    return Account(
        budget, {each: sum(trial.epochs for trial in trials if trial.outcome == each) for each in OUTCOMES},
        Counter(trial.outcome for trial in trials), sum(trial.lost for trial in trials), seconds,
    )


def endings_of(trials: Sequence[TriedTrial]) -> list[Ending]:
    """Reasons why trials were stopped, failed or are open, by outcome and then by frequency."""
    groups: dict[tuple[Outcome, str], list[TriedTrial]] = {}
    for trial in trials:
        if trial.outcome in ("finished", "open") and not trial.reason:
            continue
        groups.setdefault((trial.outcome, _kind(trial)), []).append(trial)
    endings = [
        Ending(
            outcome, kind, len(group), median(trial.curve[-1][0] if trial.curve else 0.0 for trial in group),
            _examples(group),
        )
        for (outcome, kind), group in groups.items()
    ]
    return sorted(endings, key=lambda ending: (OUTCOMES.index(ending.outcome), -ending.count, ending.kind))


def _kind(trial: TriedTrial) -> str:
    """`Ending.kind` of a trial. All failures share one kind, and all interruptions."""
    if not trial.reason:
        return _NO_REASON
    if trial.outcome in ("failed", "open"):
        return "errors" if trial.outcome == "failed" else "interruptions"
    return trial.rule or "other"


def _examples(group: Sequence[TriedTrial]) -> tuple[tuple[str, str], ...]:
    by_reason = {trial.reason: trial.name for trial in reversed(group) if trial.reason}
    return tuple((name, reason) for reason, name in list(reversed(by_reason.items()))[:_MOST_EXAMPLES])


@dataclass(frozen=True)
class SearchSpace:
    """One cell. domains: of every searched setting, by dotted name. epochs: its budget. epochs_of_a_trial: of a trial
    that is not stopped early. Both are None where unknown. device_seconds: its budget, None without one.

    is_seen: the study could not be read here, so the domains are the ranges that the trials span. written: the study
    and the cell that the domains were read from, None if they could not be read.
    """

    cell: str
    domains: Mapping[str, Domain]
    epochs: float | None
    epochs_of_a_trial: float | None = None
    device_seconds: float | None = None
    is_seen: bool = False
    written: tuple[StudySpec, Cell] | None = None


def spaces_of(record: StudyRecord, searches: Mapping[str, Sequence[Trial]]) -> tuple[list[SearchSpace], str]:
    """The search spaces of the cells of a study, and a remark, empty if the study could be read.

    A study of another version, or with user components whose code is not here, cannot be read. The spaces are then
    those of cells with trials, with the ranges that the trials span.
    """
    try:
        return _as_written(record), ""
    except (ConfigError, StorageError) as error:
        spaces = [_as_seen(cell, trials) for cell, trials in searches.items()]
        reason = str(error).splitlines()[0]
        return spaces, f"The study cannot be read here ({reason}), so ranges are those of its trials, on linear axes."


def _as_written(record: StudyRecord) -> list[SearchSpace]:
    study = study_of(record)
    cells = repeated_cells(study, resolve_cells(study, where=f"study {record.name}"))
    return [
        SearchSpace(
            cell.name, cell.domains, epochs_of_cell(study, cell), float(cell.training["epochs"]),
            study.budget.device_seconds_per_cell, written=(study, cell),
        )
        for cell in cells
    ]


def _as_seen(cell: str, trials: Sequence[Trial]) -> SearchSpace:
    values: dict[str, list[Any]] = {}
    for trial in trials:
        for name, value in trial[-1].start.configuration.items():
            if name != "seed":
                values.setdefault(name, []).append(value)
    return SearchSpace(cell, {name: seen_domain(seen) for name, seen in values.items()}, None, is_seen=True)


def text_of(value: Any) -> str:
    """The value as in a study file, floats with six significant digits."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def settings_text(trial: TriedTrial) -> str:
    """`loss.margin 0.2, training.learning_rate 0.0003`."""
    values = {name: value for name, value in trial.configuration.items() if name != "seed"}
    return ", ".join(f"{name} {text_of(value)}" for name, value in values.items()) or "nothing searched"


def seen_domain(values: Iterable[Any]) -> Domain:
    """The range or the choices that the values of a setting span, where its domain is not known. values: at least one.

    Choices are of any kind and number, because another version may allow what this one does not.
    """
    seen = list(values)
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in seen):
        return Range(low=min(seen), high=max(seen), integer=all(isinstance(value, int) for value in seen))
    return Choices.model_construct(choices=list({text_of(value): value for value in seen}.values()))


@dataclass(frozen=True)
class ExplainedCell:
    """trials: of its search, in the order in which they started. winner: the trial that represents its search, None if
    no trial has a result. range_ends: settings of the winner at an end of the searched range."""

    space: SearchSpace
    trials: tuple[TriedTrial, ...]
    winner: TriedTrial | None
    account: Account
    endings: tuple[Ending, ...]
    importances: Importances
    range_ends: tuple[RangeEnd, ...] = ()

    @property
    def name(self) -> str:
        return self.space.cell

    @property
    def settings(self) -> list[str]:
        """Every searched setting, the most important first; settings without an importance last, in the study's order.
        """
        return [*self.importances.shares, *(name for name in self.space.domains if name not in self.importances.shares)]


@dataclass(frozen=True)
class ExplainedStudy:
    """how: (name, value) pairs on how configurations were sampled and stopped. remark: information that is missing."""

    study: str
    how: tuple[tuple[str, str], ...]
    cells: tuple[ExplainedCell, ...]
    remark: str


def explain(record: StudyRecord, attempts: Sequence[AttemptRecord]) -> ExplainedStudy:
    """The search of a study from its stored records. Cells without a trial are included if the study can be read."""
    searches = searches_of(attempts)
    spaces, remark = spaces_of(record, searches)
    limits = (record.config.get("search") or {}).get("constraints") or {}
    constraints = ConstraintSpec(**{key: limits.get(key) for key in ConstraintSpec.model_fields})
    cells = tuple(_cell(space, searches.get(space.cell, []), constraints) for space in spaces)
    return ExplainedStudy(record.name, _how(record.config), cells, remark)


def _cell(space: SearchSpace, search: Sequence[Trial], constraints: ConstraintSpec) -> ExplainedCell:
    trials = tuple(tried(trial, constraints) for trial in search)
    best = winner_of(search)
    level = [(trial.configuration, trial.value) for trial in trials if trial.value is not None and has_levelled(trial)]
    ends = []
    if space.written is not None and best is not None and configurations_of(by_configuration(search)) > 1:
        ends = range_ends(*space.written, best.start.configuration)
    return ExplainedCell(
        space, trials, next((trial for trial in trials if best is not None and trial.name == best.start.trial), None),
        account_of(trials, space), tuple(endings_of(trials)), importances_of(space.domains, level),
        tuple(ends),
    )


def has_levelled(trial: TriedTrial) -> bool:
    """Whether its best M-Recall measures its configuration: the trial finished, or patience stopped it because it no
    longer improved. Other rules stop trials that still improve, so their best depends on when they were stopped."""
    return trial.outcome == "finished" or (trial.outcome == "stopped" and trial.rule == "patience")


def _objective(search: Mapping[str, Any]) -> str | None:
    """The objective in words; None for the default, the best M-Recall."""
    kind, target = search.get("objective"), search.get("target")
    if kind in (None, "best_m_recall"):
        return None
    return f"{kind} ({target})" if kind == "epochs_to_target" else str(kind)


def _limits(constraints: Mapping[str, Any]) -> str | None:
    return ", ".join(f"{key} {limit:g}" for key, limit in constraints.items() if limit is not None) or None


def _how(config: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """`ExplainedStudy.how`, from the raw config, so that studies of any version give the values that they have."""
    search, scheduler = (config.get(part) or {} for part in ("search", "scheduler"))
    settings = {
        "sampler": search.get("sampler"), "start": search.get("start"), "seed of the search": search.get("seed"),
        "searched for": _objective(search), "at most": _limits(search.get("constraints") or {}),
        "early stopping": scheduler.get("kind"), "no trial stops before epoch": scheduler.get("grace_epochs"),
    }
    return tuple((name, text_of(value)) for name, value in settings.items() if value is not None)
