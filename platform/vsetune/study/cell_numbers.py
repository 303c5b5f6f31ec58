"""Numbers of a cell's trials, for display: the live table and the gauges."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from vsetune.board.selection import sum_of
from vsetune.records.events import AttemptStatus
from vsetune.study.trials import PlannedTrial


@dataclass(frozen=True)
class CellNumbers:
    """Numbers of all trials of a cell, including confirming ones.

    ended: number of closed trials. running: in the order in which they were handed out. best: M-Recall in per cent, 0
    without one. charged_epochs: without lost epochs. wasted_epochs: lost epochs. usd: None where no price is known.
    validations: those repeated after a crash count once. attempts: by (status, kind of failure), the kind `none`
    without a failure.
    """

    ended: int
    running: tuple[PlannedTrial, ...]
    best: float
    charged_epochs: float
    wasted_epochs: float
    device_seconds: float
    usd: float | None
    validations: int
    attempts: Counter[tuple[AttemptStatus, str]]

    @classmethod
    def of(cls, trials: Sequence[PlannedTrial]) -> CellNumbers:
        measured = [trial.measured for trial in trials]
        cost = sum_of([each.cost for each in measured])
        return cls(
            ended=sum(trial.is_closed for trial in trials),
            running=tuple(trial for trial in trials if not trial.is_closed and trial.status == "running"),
            best=max((each.best for each in measured), default=0.0),
            charged_epochs=cost.budget_epochs, wasted_epochs=cost.wasted_epochs, device_seconds=cost.device_seconds,
            usd=cost.usd, validations=sum(each.validations for each in measured),
            attempts=Counter(itertools.chain.from_iterable(each.attempts for each in measured)),
        )

    @property
    def prices(self) -> list[float | None]:
        """USD per hour of the share of a node that each running trial holds; None on a node without a price."""
        found = [trial.attempts[-1].start.environment.get("usd_per_hour") for trial in self.running]
        return [None if price is None else float(price) for price in found]
