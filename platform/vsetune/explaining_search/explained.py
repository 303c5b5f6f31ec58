"""The search of a study by cell: its trials, their cost, and the importance of settings. No markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vsetune.config.study.study_spec import ConstraintSpec
from vsetune.explaining_search.cell_account import Account, Ending, account_of, endings_of
from vsetune.explaining_search.search_spaces import SearchSpace, spaces_of
from vsetune.explaining_search.setting_axes import text_of
from vsetune.explaining_search.tried_trials import TriedTrial, searches_of, tried
from vsetune.jobs.range_ends import range_ends
from vsetune.leaderboard.range_end import RangeEnd
from vsetune.leaderboard.selection import Trial, by_configuration, configurations_of, winner_of
from vsetune.records.attempts import AttemptRecord, StudyRecord
from vsetune.search.importances import Importances, importances_of


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
    told = {
        "sampler": search.get("sampler"), "start": search.get("start"), "seed of the search": search.get("seed"),
        "searched for": _objective(search), "at most": _limits(search.get("constraints") or {}),
        "learns from": ", ".join(search.get("warm_start") or []) or None,
        "early stopping": scheduler.get("kind"), "no trial stops before epoch": scheduler.get("grace_epochs"),
    }
    return tuple((name, text_of(value)) for name, value in told.items() if value is not None)
