"""Mapping of values to pixels along an axis of a plot."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Linear map of low to high onto start to end, in pixels. Values outside go to the edge; if low equals high, all
    values go to the middle."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(self.start + min(1.0, max(0.0, share)) * (self.end - self.start), 2)
