"""Configurations confirmed beside the winner of a cell, over the same seeds: the runner-up and the papers' settings."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from vsetune.leaderboard.rows import Contender, SeedResult
from vsetune.leaderboard.selection import (
    PAPERS,
    ROLES,
    RUNNER_UP,
    Configurations,
    Trial,
    configuration_key,
    runs_of_configuration,
    usable,
)
from vsetune.metrics.curves import best_of_curve
from vsetune.metrics.efficiency import epochs_to_best
from vsetune.records.attempts import AttemptRecord


def seed_result(attempt: AttemptRecord, *, was_searched: bool) -> SeedResult:
    """The result of one seed from its latest attempt. was_searched: the search tried more than one configuration."""
    summary = attempt.summary
    best = best_of_curve(attempt.curve)
    seconds = summary.get("seconds_per_epoch")
    if seconds is None and "train_seconds" in summary:
        seconds = summary["train_seconds"] / attempt.curve[-1][0]
    return SeedResult(
        seed=attempt.start.seed, trial=attempt.start.trial, status=attempt.status, curve=attempt.curve,
        best_m_recall=best.m_recall, epochs_to_best=epochs_to_best(attempt.curve, tolerance=0.0),
        seconds_per_epoch=seconds, test_m_recall=summary.get("test_m_recall"),
        chose=was_searched and attempt.start.phase == "search", hardware=_hardware(attempt.start.environment),
    )


def _hardware(environment: Mapping[str, str]) -> str:
    """Hardware in words: the model of a GPU, or a processor with its number of threads."""
    device = environment.get("device", "")
    if device and device != "cpu":
        return environment.get("device_name", device)
    processor, threads = environment.get("processor", ""), environment.get("threads", "")
    return f"{processor}, {threads} thread{'' if threads == '1' else 's'}" if processor and threads else ""


def contenders_of(
    trials: Sequence[Trial], configurations: Configurations, winner: AttemptRecord, headline: Sequence[SeedResult]
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


def _roles(trials: Sequence[Trial]) -> dict[str, AttemptRecord]:
    """An attempt of every configuration that was confirmed, by its role, the runner-up first."""
    told = {
        role: trial[-1] for trial in trials
        if trial[-1].start.phase == "confirm" and (role := trial[-1].start.environment.get(ROLES))
    }
    return {role: told[role] for role in sorted(told, key=lambda role: (role == PAPERS, RUNNER_UP not in role, role))}
