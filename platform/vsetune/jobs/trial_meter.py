"""What a worker measures of the trial it runs, beside what the trial measures of itself."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from vsetune.tracking.records import ValidationPoint
from vsetune.training.calibration import calibration_seconds
from vsetune.training.peak_memory import peak_memory_bytes, reset_peak_memory

CALIBRATION_METRIC = "calibration_seconds"


@dataclass(frozen=True)
class Window:
    """The training between two validations. calibration: seconds of one calibration product around it."""

    epochs: float
    pairs: int
    train_seconds: float
    load_seconds: float
    calibration: float


class TrialMeter:
    """Time to start, peak memory and, where asked for, times in calibration products.

    calibrates: whether a calibration product is timed before and after the training between two validations.
    """

    def __init__(self, device: torch.device, *, calibrates: bool) -> None:
        self._device, self._calibrates = device, calibrates
        if calibrates:
            _warm_up()
        self._begin = time.perf_counter()
        self._start_seconds: float | None = None
        self._windows: list[Window] = []
        reset_peak_memory(device)

    def opened(self) -> None:
        """The trial can train now."""
        self._start_seconds = time.perf_counter() - self._begin

    def around(
        self, advance: Callable[[], ValidationPoint], history: Sequence[ValidationPoint]
    ) -> ValidationPoint:
        """Calls `advance`; its point, with `calibration_seconds` among the metrics where they are asked for.

        history: validations before.
        """
        if not self._calibrates:
            return advance()
        before = calibration_seconds(self._device)
        point = advance()
        seconds = (before + calibration_seconds(self._device)) / 2
        self._windows.append(_window(history[-1] if history else None, point, seconds))
        return replace(point, metrics={**point.metrics, CALIBRATION_METRIC: seconds})

    def summary(self) -> dict[str, float]:
        """`start_seconds` (until the first step could begin), `peak_memory_bytes`; of a calibrated trial also
        `calibration_seconds`, `epoch_products` (training, per epoch), `pairs_per_product` (waiting for data counts) and
        `start_products`: medians over the windows of this execution, in calibration products."""
        peak = peak_memory_bytes(self._device)
        found = {} if peak is None else {"peak_memory_bytes": float(peak)}
        found |= {} if self._start_seconds is None else {"start_seconds": self._start_seconds}
        return found | self._relative()

    def _relative(self) -> dict[str, float]:
        windows = [window for window in self._windows if window.epochs > 0 and window.train_seconds > 0]
        if not windows:
            return {}
        calibration = statistics.median(window.calibration for window in windows)
        relative = {
            CALIBRATION_METRIC: calibration,
            "epoch_products": statistics.median(w.train_seconds / w.epochs / w.calibration for w in windows),
            "pairs_per_product": statistics.median(
                w.pairs / (w.train_seconds + w.load_seconds) * w.calibration for w in windows
            ),
        }
        if self._start_seconds is not None:
            relative["start_products"] = self._start_seconds / calibration
        return relative


@lru_cache(maxsize=1)
def _warm_up() -> None:
    """Import what a process imports when it first makes an optimizer or reads semantic vectors: seconds that whichever
    trial comes first would otherwise be charged with."""
    import sklearn.decomposition
    import sklearn.feature_extraction.text  # noqa: F401

    weight = torch.zeros(1, requires_grad=True)
    torch.autograd.backward(weight.sum())
    torch.optim.Adam([weight]).step()


def _window(before: ValidationPoint | None, point: ValidationPoint, calibration: float) -> Window:
    loaded = point.metrics.get("load_seconds", 0.0)
    if before is None:
        return Window(point.epoch, point.pairs_seen, point.train_seconds, loaded, calibration)
    return Window(
        point.epoch - before.epoch, point.pairs_seen - before.pairs_seen, point.train_seconds - before.train_seconds,
        loaded - before.metrics.get("load_seconds", 0.0), calibration,
    )
