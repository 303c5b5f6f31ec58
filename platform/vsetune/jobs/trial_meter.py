"""Measurements of a trial by its worker, in addition to the trial's own."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from vsetune.records.attempts import ValidationPoint
from vsetune.training.calibration import Calibration, calibrate
from vsetune.training.peak_memory import peak_memory_bytes, reset_peak_memory

CALIBRATION_METRIC = "calibration_seconds"


@dataclass(frozen=True)
class Window:
    """The training between two validations. worked_seconds: processor time of steps. trained_seconds: wall-clock time
    of steps, including waiting in them. seconds: wall-clock time of steps and of waiting for their batches.
    calibration: seconds of one product, the mean of one before and one after."""

    epochs: float
    pairs: int
    worked_seconds: float
    trained_seconds: float
    seconds: float
    calibration: Calibration


class TrialMeter:
    """Measures time to start, peak memory and, on request, times in calibration products.

    calibrates: whether a calibration product is timed before and after the training between two validations. windows:
    these trainings.
    """

    def __init__(self, device: torch.device, *, calibrates: bool) -> None:
        self._device, self._calibrates = device, calibrates
        if calibrates:
            _warm_up()
        self._begin = time.perf_counter()
        self._start_seconds: float | None = None
        self.windows: list[Window] = []
        reset_peak_memory(device)

    def opened(self) -> None:
        """Notes that the trial can begin to train."""
        self._start_seconds = time.perf_counter() - self._begin

    def around(
        self, advance: Callable[[], ValidationPoint], history: Sequence[ValidationPoint],
        worked_seconds: Callable[[], float],
    ) -> ValidationPoint:
        """Calls `advance` and returns its point, with `calibration_seconds` among the metrics if `calibrates`.

        history: earlier validations. worked_seconds: gives the processor time of steps so far.
        """
        if not self._calibrates:
            return advance()
        before, worked = calibrate(self._device), worked_seconds()
        point = advance()
        worked = worked_seconds() - worked
        after = calibrate(self._device)
        calibration = Calibration((before.passed + after.passed) / 2, (before.worked + after.worked) / 2)
        last = history[-1] if history else None
        self.windows.append(Window(
            epochs=point.epoch - (last.epoch if last else 0.0),
            pairs=point.pairs_seen - (last.pairs_seen if last else 0), worked_seconds=worked,
            trained_seconds=point.train_seconds - (last.train_seconds if last else 0.0),
            seconds=_seconds(point) - (_seconds(last) if last else 0.0), calibration=calibration,
        ))
        return replace(point, metrics={**point.metrics, CALIBRATION_METRIC: calibration.passed})

    def summary(self) -> dict[str, float]:
        """`start_seconds` (until the first step could begin) and `peak_memory_bytes`; for a calibrated trial also
        `calibration_seconds` and `start_products`, and in calibration products the medians over the windows of this
        execution: `epoch_products` (processor time of an epoch's steps), `epoch_wall_products` (their wall-clock time)
        and `pairs_per_product` (by wall-clock time, including waiting for data)."""
        peak = peak_memory_bytes(self._device)
        found = {} if peak is None else {"peak_memory_bytes": float(peak)}
        found |= {} if self._start_seconds is None else {"start_seconds": self._start_seconds}
        return found | self._relative()

    def _relative(self) -> dict[str, float]:
        windows = [window for window in self.windows if window.epochs > 0 and window.seconds > 0]
        if not windows:
            return {}
        passed = statistics.median(window.calibration.passed for window in windows)
        relative = {
            CALIBRATION_METRIC: passed,
            "epoch_products": statistics.median(w.worked_seconds / w.epochs / w.calibration.worked for w in windows),
            "epoch_wall_products": statistics.median(
                w.trained_seconds / w.epochs / w.calibration.passed for w in windows
            ),
            "pairs_per_product": statistics.median(w.pairs / w.seconds * w.calibration.passed for w in windows),
        }
        if self._start_seconds is not None:
            relative["start_products"] = self._start_seconds / passed
        return relative


def _seconds(point: ValidationPoint) -> float:
    """Seconds of training and of waiting for batches since the trial began."""
    return point.train_seconds + point.metrics.get("load_seconds", 0.0)


@lru_cache(maxsize=1)
def _warm_up() -> None:
    """Imports the modules that a process needs when it first makes an optimizer or reads semantic vectors. Otherwise
    these seconds would count as time of the process's first trial."""
    import sklearn.decomposition
    import sklearn.feature_extraction.text  # noqa: F401

    weight = torch.zeros(1, requires_grad=True)
    torch.autograd.backward(weight.sum())
    torch.optim.Adam([weight]).step()
