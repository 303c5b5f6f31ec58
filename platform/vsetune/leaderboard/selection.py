"""Which attempts a leaderboard shows, and what it charges for all of them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import PurePosixPath

from vsetune.leaderboard.rows import Cost
from vsetune.leaderboard.search_budgets import SearchBudget
from vsetune.metrics.curves import best_of_curve
from vsetune.records.attempts import CONSTRAINT_EXCESS, NO_CONFIGURATION, SEARCH_VALUE, AttemptRecord

Trial = tuple[AttemptRecord, ...]
"""All attempts at one trial, by number; the last one counts."""
Configurations = Mapping[str, Sequence[Trial]]
"""Trials of one cell by their configuration, as `by_configuration` has grouped them."""
_KEYS = json.JSONEncoder(sort_keys=True, default=str)

WINNER, RUNNER_UP, PAPERS = "winner", "runner-up", "papers' settings"
"""What a configuration is that `study confirm` runs again; it may be two of them."""
ROLES = "confirms"
"""Where an attempt says so, in its environment: the roles, with ` and ` between them."""


def dataset_of(attempt: AttemptRecord) -> str:
    """Name of the data set: as the protocol says, else the last part of its path."""
    named = attempt.start.protocol.get("dataset")
    data = attempt.start.resolved.get("data")
    path = data.get("path", "") if isinstance(data, dict) else ""
    return str(named or _last_part(str(path)) or "data")


@lru_cache
def _last_part(path: str) -> str:
    return PurePosixPath(path).name


def trials_of(attempts: Sequence[AttemptRecord]) -> list[Trial]:
    """Attempts grouped into trials, each in the order of their numbers."""
    grouped: defaultdict[str, list[AttemptRecord]] = defaultdict(list)
    for attempt in attempts:
        grouped[attempt.start.trial].append(attempt)
    return [tuple(sorted(trial, key=lambda attempt: attempt.start.number)) for trial in grouped.values()]


def cost_of(trials: Sequence[Trial]) -> Cost:
    """What the trials used, whatever became of them. The one definition, of the leaderboard and of a study's budget."""
    return sum_of(costs_of(trials))


def costs_of(trials: Iterable[Trial]) -> list[Cost]:
    """What each of them used; of many it takes a while, so that who needs them again keeps them."""
    return [_cost(trial) for trial in trials]


def sum_of(costs: Sequence[Cost]) -> Cost:
    return Cost(
        budget_epochs=sum(cost.budget_epochs for cost in costs),
        device_seconds=sum(cost.device_seconds for cost in costs),
        wasted_epochs=sum(cost.wasted_epochs for cost in costs),
        usd=_sum_of_known(cost.usd for cost in costs),
        unpriced_seconds=sum(cost.unpriced_seconds for cost in costs),
    )


def budget_of_search(trials: Sequence[Trial], costs: Sequence[Cost]) -> SearchBudget | None:
    """Of one cell, whatever else ran of it; None where its attempts tell of none. costs: of each trial."""
    searched = [each for each in zip(trials, costs, strict=True) if each[0][-1].start.phase == "search"]
    total = sum_of([cost for _, cost in searched])
    failed = [cost.budget_epochs for trial, cost in searched if trial[-1].status == "failed"]
    is_over = all(trial[-1].status in ("finished", "pruned", "failed") for trial, _ in searched)
    budgets = (
        SearchBudget.recorded(
            attempt.start.environment, trained=total.budget_epochs, failed=failed, is_over=is_over,
            device_seconds=total.device_seconds,
        )
        for trial, _ in searched for attempt in reversed(trial)
    )
    return next((budget for budget in budgets if budget is not None), None)


def _cost(trial: Trial) -> Cost:
    """Epochs, device-seconds and dollars of one trial, each attempt at the price of its own node.

    The epochs of the latest attempt live on; the rest is wasted. An attempt that continued from a checkpoint repeats
    the earlier curve, which is charged once. Device-seconds of an attempt include those of the attempts before it, as
    far as it knows them (`wasted_seconds` of its summary): each attempt is charged what it adds. Wasted epochs are what
    an earlier attempt's curve has beyond the shared part (all of it, if the next one began anew), or more if an attempt
    says so: `wasted_epochs` of its summary, counted from the start of the trial, has what no curve shows.
    """
    alive = seconds = wasted = told = 0.0
    before: AttemptRecord | None = None
    money: list[float | None] = []
    unpriced = 0.0
    for attempt in trial:
        inherited = _inherited_epochs(before, attempt) if before else 0.0
        so_far = max(seconds, _device_seconds(attempt))
        held, seconds = so_far - seconds, so_far
        money.append(_usd(attempt, held))
        unpriced += held if money[-1] is None else 0.0
        if before is not None and not _last_epoch(attempt):
            continue  # it has shown nothing yet: the earlier one still stands
        said = attempt.summary.get("wasted_epochs", told)
        wasted += max(alive - inherited, said - told, 0.0)
        alive, told, before = _last_epoch(attempt), said, attempt
    return Cost(alive, seconds, wasted, _sum_of_known(money), unpriced)


def _usd(attempt: AttemptRecord, seconds: float) -> float | None:
    price = attempt.start.environment.get("usd_per_hour")
    return None if price is None else float(price) * seconds / 3600


def _sum_of_known(amounts: Iterable[float | None]) -> float | None:
    """None where none is known."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def _inherited_epochs(before: AttemptRecord, attempt: AttemptRecord) -> float:
    """The epoch up to which both attempts have the very same curve."""
    inherited = 0.0
    for old, new in zip(before.curve, attempt.curve, strict=False):
        if old != new:
            break
        inherited = new[0]
    return inherited


def _last_epoch(attempt: AttemptRecord) -> float:
    seen = attempt.curve[-1][0] if attempt.curve else 0.0
    return max(seen, attempt.summary.get("epochs", 0.0))


def _device_seconds(attempt: AttemptRecord) -> float:
    return attempt.summary.get("device_seconds", attempt.summary.get("train_seconds", 0.0))


def usable(trial: Trial) -> bool:
    """Its curve may be shown: it has one, and it did not end in an error."""
    return bool(trial[-1].curve) and trial[-1].status != "failed"


def why_cannot_draw(trials: Sequence[Trial]) -> str | None:
    """Why the search of a cell found no further valid configuration; None where it found one."""
    last = next((trial[-1] for trial in reversed(trials) if trial[-1].start.phase == "search"), None)
    is_dead_end = last is not None and last.status == "failed" and (last.error or "").startswith(NO_CONFIGURATION)
    return last.error if last is not None and is_dead_end else None


def configuration_key(attempt: AttemptRecord) -> str:
    """Equal for attempts that differ in nothing but the seed."""
    plain = {key: value for key, value in attempt.start.configuration.items() if key != "seed"}
    return _KEYS.encode(plain)


def by_configuration(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    """By `configuration_key` of the latest attempt, each in the order in which they are given."""
    grouped: defaultdict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        grouped[configuration_key(trial[-1])].append(trial)
    return dict(grouped)


def winner_of(trials: Sequence[Trial]) -> AttemptRecord | None:
    """The attempt that represents a cell: of its search, the finished one with the best validation M-Recall, or with
    the best value of what else the search was to maximise.

    The one definition: these trials are confirmed with further seeds, and shown. Of equals the earlier configuration
    wins. One that breaks a constraint of the study is never chosen. Where none has finished, the best usable attempt of
    the search stands for it (the board says `incomplete`), and where the search has none of those either, of the
    confirming runs. None if there is no usable attempt at all.
    """
    candidates = [(_worth(attempt), attempt) for attempt in _candidates(trials)]
    best = max((worth for worth, _ in candidates), default=None)
    equals = [attempt for worth, attempt in candidates if worth == best]
    return min(equals, key=lambda attempt: _order(attempt.start.trial), default=None)


def runner_up_of(trials: Sequence[Trial]) -> AttemptRecord | None:
    """The best finished trial of the search with another configuration than the winner's; None where there is none."""
    winner = winner_of(trials)
    if winner is None:
        return None
    key = configuration_key(winner)
    return winner_of([
        trial for trial in trials
        if trial[-1].status == "finished" and trial[-1].start.phase == winner.start.phase
        and configuration_key(trial[-1]) != key
    ])


def _candidates(trials: Sequence[Trial]) -> list[AttemptRecord]:
    """The attempts that may represent a cell."""
    candidates = [trial[-1] for trial in trials if usable(trial) and keeps_constraints(trial[-1])]
    searched = [attempt for attempt in candidates if attempt.start.phase == "search"] or candidates
    return [attempt for attempt in searched if attempt.status == "finished"] or searched


def _worth(attempt: AttemptRecord) -> tuple[bool, float]:
    """What the search maximises; an attempt that was never told of it comes after all that were."""
    value = attempt.summary.get(SEARCH_VALUE)
    return value is not None, best_of_curve(attempt.curve).m_recall if value is None else value


def keeps_constraints(attempt: AttemptRecord) -> bool:
    """As far as was measured by the time it ended."""
    return attempt.summary.get(CONSTRAINT_EXCESS, 0.0) <= 0


def configurations_of(configurations: Configurations) -> int:
    """How many configurations the search of a cell has tried, whatever became of them."""
    return sum(any(trial[-1].start.phase == "search" for trial in trials) for trials in configurations.values())


def runs_of_configuration(configurations: Configurations, winner: AttemptRecord) -> list[Trial]:
    """One trial per seed of the winner's configuration, by seed.

    Of several with one seed the usable one, of those a confirming one, of those the winner itself.
    """
    by_seed: dict[int, Trial] = {}
    same = configurations.get(configuration_key(winner), ())
    for trial in sorted(same, key=lambda trial: _order(trial[-1].start.trial)):
        last = trial[-1]
        known = by_seed.get(last.start.seed)
        if known is None or _rank(trial, winner) > _rank(known, winner):
            by_seed[last.start.seed] = trial
    return [by_seed[seed] for seed in sorted(by_seed)]


def _rank(trial: Trial, winner: AttemptRecord) -> tuple[bool, bool, bool]:
    return usable(trial), trial[-1].start.phase == "confirm", trial[-1] is winner


def _order(name: str) -> list[tuple[int, str]]:
    """Sorts names with their numbers as numbers: c2 before c10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
