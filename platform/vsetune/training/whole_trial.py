"""A trial from start to end in this process, as `vsetune train` runs it: no cluster, no scheduler."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vsetune.config.study.training import TrialSpec
from vsetune.tracking.records import ValidationPoint
from vsetune.training.attempt import Attempt


def run_trial(
    trial: TrialSpec, folder: Path, *, device: str, threads: int | None, on_point: Callable[[ValidationPoint], None]
) -> dict[str, float]:
    """Train to the budget, or continue to it, and return the summary. on_point: told of every new validation.

    Errors as in `Attempt`.
    """
    attempt = Attempt(trial, folder, device=device, threads=threads)
    while not attempt.is_finished:
        on_point(attempt.advance())
    return attempt.finish()
