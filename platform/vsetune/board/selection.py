"""The attempts that a leaderboard shows, the configurations confirmed beside a winner, and the cost of all."""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import PurePosixPath

from vsetune.board.rows import Cost
from vsetune.board.search_budgets import SearchBudget
from vsetune.board.seed_results import CXC, CXC_AMONG, ECCV, FURTHER, RECALLS, TEST, Contender, SeedResult
from vsetune.metrics.curves import best_of_curve, is_trained
from vsetune.metrics.efficiency import epochs_to_best
from vsetune.records.events import CONSTRAINT_EXCESS, NO_CONFIGURATION, SEARCH_VALUE, has_diverged
from vsetune.records.state import Attempt, Trial

Configurations = Mapping[str, Sequence[Trial]]
"""Trials of one cell by configuration, as `by_configuration` groups them."""
_KEYS = json.JSONEncoder(sort_keys=True, default=str)

WINNER, RUNNER_UP, PAPERS = "winner", "runner-up", "papers' settings"
"""Roles of a configuration that `study confirm` runs again; a configuration may have two."""
ROLES = "confirms"
"""Key in the environment of an attempt for its roles, joined by ` and `."""


def dataset_of(attempt: Attempt) -> str:
    """Name of the data set: from the protocol, else the last part of its path."""
    named = attempt.start.protocol.get("dataset")
    data = attempt.start.resolved.get("data")
    path = data.get("path", "") if isinstance(data, dict) else ""
    return str(named or _last_part(str(path)) or "data")


@lru_cache
def _last_part(path: str) -> str:
    return PurePosixPath(path).name


def cost_of(trials: Sequence[Trial]) -> Cost:
    """Cost of the trials, whatever their outcome. The leaderboard and the budget of a study share this definition."""
    return sum_of(costs_of(trials))


def costs_of(trials: Iterable[Trial]) -> list[Cost]:
    """Cost of each trial. Slow for many trials, so callers that need the costs again should store them."""
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
    """Budget of one cell's search; None where its attempts record none. costs: of each trial.

    Trials of other phases are ignored.
    """
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

    The epochs of the latest attempt count; the others are wasted. An attempt that continued from a checkpoint repeats
    the earlier curve, which is charged once. Device-seconds of an attempt include those of earlier attempts as far as
    it knows them (`wasted_seconds` of its summary), so each attempt is charged the seconds that it adds. Wasted epochs
    are the epochs of an earlier attempt beyond the shared part of the curves (all, if the next attempt started again).
    They are more if an attempt reports more: `wasted_epochs` of its summary, counted from the start of the trial,
    includes epochs that no curve shows.
    """
    alive = seconds = wasted = reported = 0.0
    before: Attempt | None = None
    money: list[float | None] = []
    unpriced = 0.0
    for attempt in trial:
        inherited = _inherited_epochs(before, attempt) if before else 0.0
        so_far = max(seconds, _device_seconds(attempt))
        added, seconds = so_far - seconds, so_far
        money.append(_usd(attempt, added))
        unpriced += added if money[-1] is None else 0.0
        if before is not None and not _last_epoch(attempt):
            continue  # no validation yet: the earlier attempt still counts
        total = attempt.summary.get("wasted_epochs", reported)
        wasted += max(alive - inherited, total - reported, 0.0)
        alive, reported, before = _last_epoch(attempt), total, attempt
    return Cost(alive, seconds, wasted, _sum_of_known(money), unpriced)


def _usd(attempt: Attempt, seconds: float) -> float | None:
    price = attempt.start.environment.get("usd_per_hour")
    return None if price is None else float(price) * seconds / 3600


def _sum_of_known(amounts: Iterable[float | None]) -> float | None:
    """Sum of the known amounts; None if none is known."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def _inherited_epochs(before: Attempt, attempt: Attempt) -> float:
    """The epoch up to which both attempts have the same curve."""
    inherited = 0.0
    for old, new in zip(before.curve, attempt.curve, strict=False):
        if old != new:
            break
        inherited = new[0]
    return inherited


def _last_epoch(attempt: Attempt) -> float:
    seen = attempt.curve[-1][0] if attempt.curve else 0.0
    return max(seen, attempt.summary.get("epochs", 0.0))


def _device_seconds(attempt: Attempt) -> float:
    return attempt.summary.get("device_seconds", attempt.summary.get("train_seconds", 0.0))


def usable(trial: Trial) -> bool:
    """Whether its curve may be shown: the trial has a curve and did not fail."""
    return bool(trial[-1].curve) and trial[-1].status != "failed"


def why_cannot_draw(trials: Sequence[Trial]) -> str | None:
    """Why the search of a cell found no further valid configuration; None where it found one."""
    last = next((trial[-1] for trial in reversed(trials) if trial[-1].start.phase == "search"), None)
    is_dead_end = last is not None and last.status == "failed" and (last.error or "").startswith(NO_CONFIGURATION)
    return last.error if last is not None and is_dead_end else None


def configuration_key(attempt: Attempt) -> str:
    """A key that is equal for attempts that differ only in the seed."""
    plain = {key: value for key, value in attempt.start.configuration.items() if key != "seed"}
    return _KEYS.encode(plain)


def by_configuration(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    """Trials by `configuration_key` of the latest attempt, each group in the given order."""
    grouped: defaultdict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        grouped[configuration_key(trial[-1])].append(trial)
    return dict(grouped)


def winner_of(trials: Sequence[Trial]) -> Attempt | None:
    """The attempt that represents a cell: the finished attempt of its search with the best validation M-Recall, or with
    the best value of another objective of the search.

    The leaderboard and `study confirm` share this definition. Ties go to the earlier configuration. An attempt that
    breaks a constraint of the study is never chosen. If no attempt of the search has finished, its best usable attempt
    represents the cell (flag `incomplete`). If the search has no usable attempt, a confirming run represents it. None
    if there is no usable attempt at all.
    """
    candidates = [(_worth(attempt), attempt) for attempt in _candidates(trials)]
    best = max((worth for worth, _ in candidates), default=None)
    equals = [attempt for worth, attempt in candidates if worth == best]
    return min(equals, key=lambda attempt: _order(attempt.start.trial), default=None)


def runner_up_of(trials: Sequence[Trial]) -> Attempt | None:
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


def _candidates(trials: Sequence[Trial]) -> list[Attempt]:
    """The attempts that may represent a cell."""
    candidates = [trial[-1] for trial in trials if usable(trial) and keeps_constraints(trial[-1])]
    searched = [attempt for attempt in candidates if attempt.start.phase == "search"] or candidates
    return [attempt for attempt in searched if attempt.status == "finished"] or searched


def _worth(attempt: Attempt) -> tuple[bool, float]:
    """The value that the search maximises; an attempt without a recorded value ranks below all with one."""
    value = attempt.summary.get(SEARCH_VALUE)
    return value is not None, best_of_curve(attempt.curve).m_recall if value is None else value


def keeps_constraints(attempt: Attempt) -> bool:
    """Whether the attempt meets the constraints, by its measurements up to its end."""
    return attempt.summary.get(CONSTRAINT_EXCESS, 0.0) <= 0


def configurations_of(configurations: Configurations) -> int:
    """Number of configurations that the search of a cell has tried, whatever their outcome."""
    return sum(any(trial[-1].start.phase == "search" for trial in trials) for trials in configurations.values())


def runs_of_configuration(configurations: Configurations, winner: Attempt) -> list[Trial]:
    """One trial per seed of the winner's configuration, by seed.

    Among several trials with one seed, a usable one is preferred, then a confirming one, then the winner itself.
    """
    by_seed: dict[int, Trial] = {}
    same = configurations.get(configuration_key(winner), ())
    for trial in sorted(same, key=lambda trial: _order(trial[-1].start.trial)):
        last = trial[-1]
        known = by_seed.get(last.start.seed)
        if known is None or _rank(trial, winner) > _rank(known, winner):
            by_seed[last.start.seed] = trial
    return [by_seed[seed] for seed in sorted(by_seed)]


def _rank(trial: Trial, winner: Attempt) -> tuple[bool, bool, bool]:
    return usable(trial), trial[-1].start.phase == "confirm", trial[-1] is winner


def _order(name: str) -> list[tuple[int, str]]:
    """Sort key that compares numbers in names as numbers: c2 before c10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


_TEST_SCORES = frozenset({"m_recall", *RECALLS, *ECCV, *CXC, *CXC_AMONG})


def _test_scores(summary: Mapping[str, float]) -> dict[str, float]:
    """Scores on the test split (`test_m_recall`, ...) and recalls on further ones (`test.NAME.m_recall`, ...)."""
    return {
        key: value for key, value in summary.items()
        if key.startswith((TEST, FURTHER)) and key.removeprefix(TEST).rpartition(".")[2] in _TEST_SCORES
    }


def seed_results(runs: Sequence[Trial], winner: Attempt, *, was_searched: bool) -> tuple[SeedResult, ...]:
    """The results of the runs of the winner's configuration that are usable or have diverged.

    A diverged training has no network to use: it counts as 0 % at every validation of the winner. was_searched: the
    search tried more than one configuration.
    """
    curve = tuple((epoch, 0.0) for epoch, _ in winner.curve)
    scored = {name for run in runs for name in _test_scores(run[-1].summary)}
    summary = dict.fromkeys(scored, 0.0)
    found = []
    for run in runs:
        if usable(run):
            found.append(seed_result(run[-1], was_searched=was_searched))
        elif has_diverged(run[-1].status, run[-1].error):
            lost = seed_result(replace(run[-1], curve=curve, summary=summary), was_searched=was_searched)
            found.append(replace(lost, diverged=True))
    return tuple(found)


def seed_result(attempt: Attempt, *, was_searched: bool) -> SeedResult:
    """The result of one seed from its latest attempt. was_searched: the search tried more than one configuration."""
    summary = attempt.summary
    best = best_of_curve(attempt.curve)
    seconds = summary.get("seconds_per_epoch")
    if seconds is None and "train_seconds" in summary and is_trained(attempt.curve):
        seconds = summary["train_seconds"] / attempt.curve[-1][0]
    return SeedResult(
        seed=attempt.start.seed, trial=attempt.start.trial, status=attempt.status, curve=attempt.curve,
        best_m_recall=best.m_recall, epochs_to_best=epochs_to_best(attempt.curve, tolerance=0.0),
        seconds_per_epoch=seconds, test_m_recall=summary.get("test_m_recall"),
        chose=was_searched and attempt.start.phase == "search", hardware=_hardware(attempt.start.environment),
        repeat=attempt.start.repeat,
        recalls={name: value for name, value in _test_scores(summary).items() if name != f"{TEST}m_recall"},
    )


def _hardware(environment: Mapping[str, str]) -> str:
    """Hardware in words: the model of a GPU, or a processor with its number of threads."""
    device = environment.get("device", "")
    if device and device != "cpu":
        return environment.get("device_name", device)
    processor, threads = environment.get("processor", ""), environment.get("threads", "")
    return f"{processor}, {threads} thread{'' if threads == '1' else 's'}" if processor and threads else ""


def contenders_of(
    trials: Sequence[Trial], configurations: Configurations, winner: Attempt, headline: Sequence[SeedResult]
) -> tuple[Contender, ...]:
    """trials, configurations: of one cell, and the same by configuration. headline: the seeds behind its winner's
    numbers.

    Only finished confirming runs are compared, over seeds that the winner also has.
    """
    shown = {seed.seed: seed.best_m_recall for seed in headline if not seed.chose}
    found = []
    for role, first in _roles(trials).items():
        if configuration_key(first) == configuration_key(winner):
            continue
        runs = [run[-1] for run in runs_of_configuration(configurations, first) if usable(run)]
        seeds = tuple(
            seed_result(run, was_searched=False) for run in runs
            if run.start.phase == "confirm" and run.status == "finished" and run.start.seed in shown
        )
        if seeds:
            bests = [seed.best_m_recall for seed in seeds]
            found.append(Contender(
                role, first.start.configuration, seeds, statistics.fmean(bests),
                statistics.stdev(bests) if len(bests) > 1 else None,
                statistics.median(seed.epochs_to_best for seed in seeds),
                statistics.fmean(shown[seed.seed] for seed in seeds),
            ))
    return tuple(found)


def _roles(trials: Sequence[Trial]) -> dict[str, Attempt]:
    """An attempt of every configuration that was confirmed, by its role, the runner-up first."""
    confirmed = {
        role: trial[-1] for trial in trials
        if trial[-1].start.phase == "confirm" and (role := trial[-1].start.environment.get(ROLES))
    }
    order = sorted(confirmed, key=lambda role: (role == PAPERS, RUNNER_UP not in role, role))
    return {role: confirmed[role] for role in order}


def code_of(trials: Sequence[Trial]) -> dict[str, str]:
    """sha256 by key (`loss.my_loss`) of the user code that the trials of one cell have run.

    A trial that records that no configuration was found has run no code.
    """
    found: dict[str, str] = {}
    for trial in trials:
        for attempt in trial:
            plugins = attempt.start.resolved.get("plugins")
            if isinstance(plugins, Mapping) and not (attempt.error or "").startswith(NO_CONFIGURATION):
                found |= {str(key): str(sha256) for key, sha256 in plugins.items()}
    return found


def code_words(key: str, sha256: str) -> str:
    """`loss my_loss 1a2b3c4d5e6f`."""
    kind, _, name = key.partition(".")
    return f"{kind} {name} {sha256[:12]}"


def other_code(row: Mapping[str, str], reference: Mapping[str, str]) -> str | None:
    """Description of the first component of which two cells ran different versions; None without one."""
    return next((
        f"{code_words(key, row[key])} against {reference[key][:12]}: two versions of its code"
        for key in sorted(row.keys() & reference.keys()) if row[key] != reference[key]
    ), None)
