"""Values as judged: logarithms of ratios, with the sign that makes larger worse; NaN where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vsetune.nightly.measures import Measure

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]

LARGEST = 1e100
"""Values further from 0 count as missing: their squares could overflow."""


def of_all_cells(name: str) -> str:
    """Name of the mean over all cells of a measure."""
    return f"{name} of all cells"


@dataclass(frozen=True)
class Streams:
    """The judged streams, one entry per stream. sign: +1 where higher is worse. is_ratio: judged in logarithms.
    smallest: smallest change that matters (as judged, > 0). measure: number of its measure, 0 to measures - 1. whole:
    index of the stream that is the mean over all cells of its measure, -1 for none."""

    sign: Floats
    is_ratio: Bools
    smallest: Floats
    measure: Integers
    whole: Integers

    @classmethod
    def of(cls, measures: Sequence[Measure], smallest: Sequence[float]) -> Streams:
        each = [measure.name for measure in measures]
        names = sorted(set(each))
        return cls(
            sign=np.array([1.0 if measure.worse == "higher" else -1.0 for measure in measures], dtype=np.float64),
            is_ratio=np.array([measure.scale == "ratio" for measure in measures], dtype=np.bool_),
            smallest=np.array(smallest, dtype=np.float64),
            measure=np.array([names.index(name) for name in each], dtype=np.int64),
            whole=np.array([each.index(name) if name in each else -1 for name in map(of_all_cells, each)], np.int64),
        )

    @property
    def members(self) -> Floats:
        """(streams, measures), 1 where a stream belongs to a measure."""
        return np.eye(int(self.measure.max(initial=-1)) + 1)[self.measure]

    def judged(self, values: Floats) -> Floats:
        """(..., streams) in units of the measures, to values as judged; infinities and ratios <= 0 become NaN."""
        known = np.isfinite(values) & (np.abs(np.where(np.isfinite(values), values, 0.0)) <= LARGEST)
        known &= ~self.is_ratio | (np.where(known, values, 0.0) > 0)
        plain = np.where(known, values, np.nan)
        logarithms = np.log(np.where(known & self.is_ratio, values, 1.0))
        return np.where(self.is_ratio & known, logarithms, plain) * self.sign

    def in_units(self, judged: Floats) -> Floats:
        """Inverse of `judged`."""
        plain = judged * self.sign
        return np.where(self.is_ratio, np.exp(np.clip(np.where(self.is_ratio, plain, 0.0), -700, 700)), plain)

    def change_in_units(self, difference: Floats) -> Floats:
        """A difference of judged values, in the unit where linear, as a fraction where ratio; positive is higher."""
        plain = difference * self.sign
        return np.where(self.is_ratio, np.expm1(np.clip(np.where(self.is_ratio, plain, 0.0), -700, 700)), plain)
