"""One night as measured, and its form in the history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

NightState = Literal["complete", "partial", "failed"]
"""complete: every cell measured and recorded. partial: some. failed: the night could not run. Only complete cells are
judged."""


@dataclass(frozen=True)
class CellNight:
    """The measurements of one cell.

    values: by name of `MEASURES`, means over the night's seeds; a measure that could not be measured is absent.
    first_losses: of the first steps at the fixed seed, float32 losses as exact floats; empty where not taken.
    first_recalls: of the validation split after them, by name; empty where not taken.
    trouble: why the cell is incomplete, in one line; None where every trial finished.
    """

    values: Mapping[str, float]
    first_losses: Sequence[float] = ()
    trouble: str | None = None
    first_recalls: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Night:
    """One night of one nightly sweep.

    date: ISO day that names it. started, ended: ISO times in UTC. revision: commit of the code, `+changes` when edited.
    conditions: whatever affects results besides the code (data, protocol, settings, processor, device, versions of
    packages), by name; different conditions begin a new line. seeds: those of the night's trials.
    calibration_seconds: one calibration product, median over the night. study: name of its study in the tracking store.
    problems: failures, one line each.
    """

    date: str
    started: str
    ended: str
    state: NightState
    revision: str
    conditions: Mapping[str, str]
    cells: Mapping[str, CellNight]
    seeds: Sequence[int] = ()
    calibration_seconds: float | None = None
    study: str = ""
    problems: Sequence[str] = field(default_factory=tuple)

    def to_plain(self) -> dict[str, Any]:
        """The night as JSON-able data."""
        return asdict(self)
