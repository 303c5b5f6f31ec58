"""Use of a trial's machine during training, under the names by which MLflow shows such numbers.

MLflow's own sampler writes to the store from the process that it watches, which a worker must not do (decision 0001),
and takes 180 MB to load there. A worker therefore measures the same with psutil and torch, and reports it in its
points.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from statistics import fmean
from typing import Any

import psutil
import torch

from vsetune.config.spec.foreign_text import one_line
from vsetune.records.attempts import SYSTEM

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
