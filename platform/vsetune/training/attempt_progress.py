"""The progress of a trial over all its executions: the part of a checkpoint besides parameters and random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from vsetune.records.attempts import ValidationPoint


@dataclass
class Progress:
    """step, pairs_seen: trained so far. Seconds: spent so far, without the work lost by dead executions.

    load_seconds: waiting for batches. train_seconds: the steps themselves. best_step: step of the best validation.
    """

    step: int = 0
    pairs_seen: int = 0
    train_seconds: float = 0.0
    load_seconds: float = 0.0
    validation_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    best_step: int | None = None
    best_m_recall: float = float("-inf")
    history: list[ValidationPoint] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """How long the device was occupied."""
        return self.train_seconds + self.load_seconds + self.validation_seconds + self.checkpoint_seconds

    def record(self, point: ValidationPoint) -> bool:
        """Append a validation; True when it is the best so far. A tie keeps the earlier one."""
        self.history.append(point)
        if point.m_recall <= self.best_m_recall:
            return False
        self.best_step, self.best_m_recall = point.step, point.m_recall
        return True

    def state_dict(self) -> dict[str, Any]:
        """Plain data."""
        plain = {name.name: getattr(self, name.name) for name in fields(self)}
        return plain | {"history": [asdict(point) for point in self.history]}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Progress:
        """The progress that `state_dict` described."""
        return cls(**{**state, "history": [ValidationPoint(**point) for point in state["history"]]})
