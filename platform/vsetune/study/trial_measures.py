"""Measurements of a trial by its worker: its machine and price, its memory, its last validation."""

from __future__ import annotations

import logging
import os
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from statistics import fmean
from typing import Any

import psutil
import ray
import torch

from vsetune.config.study.resources import Needs
from vsetune.errors import one_line
from vsetune.records.events import SYSTEM, ValidationPoint
from vsetune.study.exported_metrics import (
    MOST_LOSS_PARTS,
    OF_TRIAL,
    TRIAL_DATA_WAIT,
    TRIAL_DEVICE_MEMORY,
    TRIAL_EPOCHS,
    TRIAL_LOSS,
    TRIAL_M_RECALL,
    TRIAL_PAIRS_PER_SECOND,
)
from vsetune.study.metrics_export import MetricsBoard
from vsetune.study.node_types import PRICE_LABEL, share_of, type_of
from vsetune.training.calibration import Calibration, calibrate
from vsetune.training.device import peak_memory_bytes, reset_peak_memory

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


_GAUGES = (TRIAL_M_RECALL, TRIAL_EPOCHS, TRIAL_PAIRS_PER_SECOND, TRIAL_DATA_WAIT, TRIAL_LOSS, TRIAL_DEVICE_MEMORY)
_LOSS_PREFIX = "loss_"


class TrialMetrics:
    """Gauges of the one trial that a worker trains. Their series end when it is closed."""

    def __init__(self, board: MetricsBoard, labels: Mapping[str, str], history: Sequence[ValidationPoint] = ()) -> None:
        """labels: study, cell, trial, phase. history: validations of earlier executions of the trial."""
        self._board, self._labels = board, tuple(labels[name] for name in OF_TRIAL)
        self._before = history[-1] if history else None
        board.put(TRIAL_DEVICE_MEMORY, lambda: {self._labels: held_memory()})

    def validated(self, point: ValidationPoint) -> None:
        """Exports the numbers of a validation."""
        board, labels, metrics = self._board, self._labels, point.metrics
        board.put(TRIAL_M_RECALL, {labels: point.m_recall / 100})
        board.put(TRIAL_EPOCHS, {labels: point.epoch})
        if "pairs_per_second" in metrics:
            board.put(TRIAL_PAIRS_PER_SECOND, {labels: metrics["pairs_per_second"]})
        waited = waiting_share(self._before, point)
        if waited is not None:
            board.put(TRIAL_DATA_WAIT, {labels: waited})
        board.put(TRIAL_LOSS, {(*labels, part): value for part, value in loss_parts(metrics).items()})
        self._before = point

    def close(self) -> None:
        """Ends the series of the trial."""
        for metric in _GAUGES:
            self._board.put(metric, {})


def waiting_share(before: ValidationPoint | None, point: ValidationPoint) -> float | None:
    """Waiting for batches / (waiting + training) between two validations. None if no time was spent on either."""
    loaded, trained = point.metrics.get("load_seconds", 0.0), point.train_seconds
    if before is not None:
        loaded, trained = loaded - before.metrics.get("load_seconds", 0.0), trained - before.train_seconds
    return loaded / (loaded + trained) if loaded + trained > 0 else None


def loss_parts(metrics: Mapping[str, float]) -> dict[str, float]:
    """The total loss as `total`, and at most MOST_LOSS_PARTS of its parts, by name."""
    parts = sorted(name for name in metrics if name.startswith(_LOSS_PREFIX))[:MOST_LOSS_PARTS]
    total = {"total": metrics["train_loss"]} if "train_loss" in metrics else {}
    return total | {name.removeprefix(_LOSS_PREFIX): metrics[name] for name in parts}


def held_memory() -> float:
    """Bytes that this process uses: of the GPU if it has used one, else of the machine."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return float(torch.cuda.memory_allocated())
    return float(psutil.Process(os.getpid()).memory_info().rss)


EVERY_S = 10.0
"""Seconds between two measurements, as in MLflow."""
_MEGABYTE = 1e6

_log = logging.getLogger(__name__)


class SystemMetrics:
    """Means between two validations. look: measures the present numbers, by name; default: `looker` of the device.

    The processor's numbers are exact. The others are means of a measurement every `every_s` seconds and one at the
    validation. A measurement that fails is left out and logged once; training continues.
    """

    def __init__(
        self, device: torch.device, *, look: Callable[[], Mapping[str, float]] | None = None, every_s: float = EVERY_S
    ) -> None:
        self._look = look or looker(device)
        self._every_s = every_s
        self._has_failed = False
        self._seen: defaultdict[str, list[float]] = defaultdict(list)
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._processor = _ProcessorTimes()
        self._thread = threading.Thread(target=self._watch, name="system-metrics", daemon=True)
        self._thread.start()

    def taken(self) -> dict[str, float]:
        """The means since the last call, with the prefix `system/`."""
        self._note()
        with self._lock:
            seen, self._seen = self._seen, defaultdict(list)
            numbers = self._processor.taken() | {name: fmean(values) for name, values in seen.items()}
        return {f"{SYSTEM}{name}": value for name, value in numbers.items()}

    def close(self) -> None:
        """Ends the measurements."""
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(self._every_s):
            self._note()

    def _note(self) -> None:
        try:
            numbers = self._look()
        except Exception as error:  # an error of the machine, its driver or its limits must not end the training
            if not self._has_failed:
                _log.warning("use of the machine is not measured for now, training goes on (%s: %s)",
                             type(error).__name__, one_line(error))
            self._has_failed = True
            return
        with self._lock:
            for name, value in numbers.items():
                self._seen[name].append(value)


class _ProcessorTimes:
    """Processor time in use between two calls, in per cent: of the machine (100: all its processors), and of this
    process (100: one processor)."""

    def __init__(self) -> None:
        self._before = self._now()

    def taken(self) -> dict[str, float]:
        before, self._before = self._before, self._now()
        (idle, total, own), (old_idle, old_total, old_own) = self._before, before
        passed = total - old_total
        if passed <= 0:
            return {}
        return {
            "cpu_utilization_percentage": 100 * min(1.0, max(0.0, 1 - (idle - old_idle) / passed)),
            "process_cpu_utilization_percentage": 100 * (own - old_own) / (passed / (psutil.cpu_count() or 1)),
        }

    def _now(self) -> tuple[float, float, float]:
        """Seconds of processor time: idle, total, and of this process."""
        times, own = psutil.cpu_times(), psutil.Process().cpu_times()
        counted = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        return times.idle + getattr(times, "iowait", 0.0), counted, own.user + own.system


def looker(device: torch.device) -> Callable[[], dict[str, float]]:
    """A function that measures memory of the machine and of this process; on a GPU also its memory and, with
    `nvidia-ml-py`, use and power."""
    process = psutil.Process()

    def look() -> dict[str, float]:
        memory = psutil.virtual_memory()
        return {
            "system_memory_usage_megabytes": memory.used / _MEGABYTE,
            "system_memory_usage_percentage": memory.percent,
            "process_memory_usage_megabytes": process.memory_info().rss / _MEGABYTE,
            **(_gpu(device) if device.type == "cuda" else {}),
        }

    return look


def _gpu(device: torch.device) -> dict[str, float]:
    """Numbers of the whole GPU, for all processes that use it."""
    name = f"gpu_{device.index or 0}"
    free, total = torch.cuda.mem_get_info(device)
    found = {
        f"{name}_memory_usage_megabytes": (total - free) / _MEGABYTE,
        f"{name}_memory_usage_percentage": 100 * (total - free) / total,
    }
    asked: dict[str, Callable[[Any], float]] = {
        f"{name}_utilization_percentage": lambda at: float(torch.cuda.utilization(at)),
        f"{name}_power_usage_watts": lambda at: torch.cuda.power_draw(at) / 1000,
    }
    for metric, ask in asked.items():
        with suppress(Exception):  # no nvidia-ml-py, or a device without this number; NVML has errors of its own
            found[metric] = ask(device)
    return found


def price_of(node_id: str, labels: Mapping[str, str]) -> float | None:
    """Dollars per hour of a whole node. None without the label, or if it is not a number, which is logged once."""
    return _price(node_id, labels.get(PRICE_LABEL))


def place_of_this_worker(needs: Needs) -> dict[str, str]:
    """For `AttemptStart.environment`: node, its type, and usd_per_hour of the trial's share if the node has a price.

    Empty outside Ray.
    """
    if not ray.is_initialized():
        return {}
    node = _this_node()
    labels = node.get("Labels", {})
    place = {"node": str(node["NodeManagerAddress"])} | ({"node_type": type_of(labels)} if type_of(labels) else {})
    price = price_of(node["NodeID"], labels)
    return place if price is None else place | {"usd_per_hour": f"{price * share_of(node['Resources'], needs):.6g}"}


def _this_node() -> dict[str, Any]:
    here = ray.get_runtime_context().get_node_id()
    found: dict[str, Any] = next(node for node in ray.nodes() if node["NodeID"] == here)
    return found


@cache
def _price(node_id: str, label: str | None) -> float | None:
    if label is None:
        return None
    try:
        return float(label)
    except ValueError:
        _log.warning("node %s: label %s is %s, need dollars per hour; counted without a price", node_id[:8],
                     PRICE_LABEL, label)
        return None
