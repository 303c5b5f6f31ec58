"""What the store keeps, as plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

AttemptStatus = Literal["running", "finished", "pruned", "failed", "killed"]
"""finished: trained to its budget. pruned: stopped by the scheduler. failed: an error. killed: its process died."""

PLUGIN_TAG = "vsetune.plugin."
"""Tags of a study and of an attempt: the hash of other people's code in it, `vsetune.plugin.loss.my_loss`."""

SYSTEM = "system/"
"""Opens the names of a point's metrics that are of its machine; MLflow shows those apart, and draws them always."""

WARM_START = "warm_start"
"""In the environment of an attempt: what the search of its cell was told of other studies, in one line."""
TARGET_REACHED = "target reached"
"""Opens the `error` of a finished attempt whose search asked for epochs to a target: it was trained until then."""
SEARCH_VALUE, CONSTRAINT_EXCESS = "search_value", "constraint_excess"
"""In the summary of a trial of a search: what it maximises, where that is not the best M-Recall (larger is better); by
what share it is over a limit of the study, where there is one (above 0: it can be no winner)."""
NO_CONFIGURATION = "no valid configuration"
"""Opens the `error` of a failed trial that stands for the configuration which the search of its cell could not find."""
DRAWN_BY = "drawn_by"
"""Key of the environment of an attempt of a search: which sampler chose its configuration, and what it had learnt from.
"""


@dataclass(frozen=True)
class ValidationPoint:
    """One validation: a point of the M-Recall curve.

    step: training steps done. epoch: pairs seen / pairs in the train split. m_recall: per cent, validation split.
    train_seconds: time in training steps since the trial began (validation and loading apart).
    metrics: everything else worth plotting (recalls in per cent, loss, rates, seconds), by name.
    """

    step: int
    epoch: float
    pairs_seen: int
    m_recall: float
    train_seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyRecord:
    """A study as the store knows it. config: the resolved study file; fingerprint: its hash."""

    name: str
    fingerprint: str
    config: Mapping[str, Any]
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AttemptStart:
    """What is known when an attempt starts. number counts from 1; a retry of a trial is number 2, ...

    configuration: flat hyperparameters that differ between trials, for people to compare (`loss.margin`: 0.2).
    resolved: the whole TrialSpec as plain data. environment: git revision, package versions, device, ...
    protocol: what was ranked and how often (`validate_every_steps`, images, captions, data fingerprint, tie rule);
    curves under different protocols must not be compared.
    phase: `search` (hyperparameters being searched) or `confirm` (the winner repeated with another seed).
    """

    study: str
    trial: str
    cell: str
    network: str
    loss: str
    number: int
    seed: int
    phase: Literal["search", "confirm"]
    configuration: Mapping[str, Any]
    resolved: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AttemptRecord:
    """One attempt with its summary and its curve, as read back from the store.

    curve: (epoch, m_recall) of every validation, in order. summary: numbers known at the end
    (`best_m_recall`, `epochs_to_best`, `train_seconds`, `device_seconds`, `wasted_epochs`, `test_m_recall`, ...).
    """

    attempt_id: str
    start: AttemptStart
    status: AttemptStatus
    curve: tuple[tuple[float, float], ...]
    summary: Mapping[str, float]
    error: str | None = None


def was_cut_short(status: str, error: str | None) -> bool:
    """Whether an attempt is finished because it reached the target of its search, before its last epoch."""
    return status == "finished" and (error or "").startswith(TARGET_REACHED)
