"""Studies, attempts and validations as the store records them: plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

AttemptStatus = Literal["running", "finished", "pruned", "failed", "killed"]
"""finished: trained to its budget. pruned: stopped by the scheduler. failed: an error. killed: its process died."""

PLUGIN_TAG = "vsetune.plugin."
"""Prefix of tags of a study and of an attempt: the hash of a plugin's code, `vsetune.plugin.loss.my_loss`."""

SYSTEM = "system/"
"""Prefix of a point's metrics about its machine; MLflow shows those in a group of their own, and plots them always."""

WARM_START = "warm_start"
"""In the environment of an attempt: which results of other studies its cell's search started from, in one line."""
TARGET_REACHED = "target reached"
"""Prefix of `error` of a finished attempt whose search minimises epochs to a target: it was trained until the target.
"""
SEARCH_VALUE, CONSTRAINT_EXCESS = "search_value", "constraint_excess"
"""In the summary of a trial of a search. SEARCH_VALUE: what the search maximises, if that is not the best M-Recall
(larger is better). CONSTRAINT_EXCESS: the share by which the trial exceeds a limit of the study, if there is one (above
0: it cannot win)."""
NO_CONFIGURATION = "no valid configuration"
"""Prefix of `error` of a failed trial that stands for a configuration which the search of its cell could not find."""
DRAWN_BY = "drawn_by"
"""Key in the environment of an attempt of a search: which sampler chose its configuration, and what it had learnt from.
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
    """A study as the store knows it. config: the resolved study file. fingerprint: its hash."""

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
    """Whether an attempt finished before its last epoch because it reached the target of its search."""
    return status == "finished" and (error or "").startswith(TARGET_REACHED)
