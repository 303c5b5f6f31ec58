"""Export of a process's metrics to Prometheus: values are set on a board, and a thread passes them to Ray regularly.

Ray collects the metrics of all processes of a node and serves them there, where Prometheus finds them; vsetune opens no
port. Setting a value is an assignment in memory: it does not wait and cannot fail. An error while values are passed to
Ray ends the export of this process with one warning, and nothing else.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Any

from ray.util import metrics as ray_metrics

from vsetune.study.exported_metrics import ExportedMetric

HAND_OVER_EVERY_S = 5.0
"""Shorter than the 10 s between Ray's collections, because Ray drops gauges that are not set again."""

_log = logging.getLogger(__name__)
Series = tuple[ExportedMetric, tuple[str, ...]]


Recorder = Callable[[ExportedMetric, float, dict[str, str]], None]
"""Receives a value of a series, with its labels: the present value of a gauge, or the amount to add to a counter."""


class RayRecorder:
    """Passes values to Ray, to which this process must be connected."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def __call__(self, metric: ExportedMetric, value: float, labels: dict[str, str]) -> None:
        known = self._known.get(metric.name)
        if known is None:
            make = ray_metrics.Gauge if metric.kind == "gauge" else ray_metrics.Counter
            name = metric.name.removesuffix("_total")  # Ray adds it again for Prometheus
            known = self._known[metric.name] = make(name, description=metric.help, tag_keys=metric.labels)
        if metric.kind == "gauge":
            known.set(value, tags=labels)
        else:
            known.inc(value, tags=labels)


class MetricsBoard:
    """The series of this process. Any thread may write. `start` begins to pass values on, `close` ends it."""

    def __init__(self, record: Recorder | None = None, *, every_s: float = HAND_OVER_EVERY_S) -> None:
        """record: None passes values to Ray, which must be connected when `start` is called. every_s: seconds."""
        self._record: Recorder = record or RayRecorder()
        self._every_s = every_s
        self._lock = threading.Lock()
        self._gauges: dict[Series, float] = {}
        self._samples: dict[Series, Callable[[], float]] = {}
        self._added: dict[Series, float] = {}
        self._before_each: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def set(self, metric: ExportedMetric, value: float, **labels: str) -> None:
        """Sets a gauge, until it is set again or dropped. A value that is not finite removes it."""
        series = _series(metric, labels)
        with self._lock:
            if math.isfinite(value):
                self._gauges[series] = float(value)
            else:
                self._gauges.pop(series, None)

    def sample(self, metric: ExportedMetric, read: Callable[[], float], **labels: str) -> None:
        """Adds a gauge that the board's thread reads each time it passes values on, for values that change between
        reports."""
        with self._lock:
            self._samples[_series(metric, labels)] = read

    def each_time(self, look: Callable[[], None]) -> None:
        """Adds a function that the board's thread calls each time before it passes values on. Only before `start`."""
        self._before_each.append(look)

    def add(self, metric: ExportedMetric, amount: float, **labels: str) -> None:
        """Increases a counter. An amount that is not positive and finite is ignored."""
        if amount > 0 and math.isfinite(amount):
            series = _series(metric, labels)
            with self._lock:
                self._added[series] = self._added.get(series, 0.0) + amount

    def drop(self, metric: ExportedMetric, **labels: str) -> None:
        """Removes the gauges of a metric that have these labels."""
        with self._lock:
            known = [series for series in (*self._gauges, *self._samples) if series[0] == metric]
            for series in [series for series in known if _has(series, labels)]:
                self._gauges.pop(series, None)
                self._samples.pop(series, None)

    def start(self) -> None:
        """Starts the thread that passes values on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="vsetune-metrics", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Passes values on a last time, then stops. Waits at most one second."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def hand_over(self) -> None:
        """Passes on the present values of all gauges, and the amounts added to counters since the last time."""
        for look in self._before_each:
            look()
        with self._lock:
            samples, gauges = dict(self._samples), dict(self._gauges)
            added, self._added = self._added, {}
        gauges |= {series: read() for series, read in samples.items()}
        for (metric, values), value in [*gauges.items(), *added.items()]:
            self._record(metric, value, dict(zip(metric.labels, values, strict=True)))

    def _run(self) -> None:
        try:
            self.hand_over()
            while not self._closing.wait(self._every_s):
                self.hand_over()
            self.hand_over()
        except Exception as error:  # a training is worth more than its metrics
            text = " ".join(str(error).split())[:200]
            _log.warning("metrics: no longer exported by this process, training goes on (%s: %s)",
                         type(error).__name__, text)


def _series(metric: ExportedMetric, labels: dict[str, str]) -> Series:
    return metric, tuple([labels[name] for name in metric.labels])


def _has(series: Series, labels: dict[str, str]) -> bool:
    metric, values = series
    own = dict(zip(metric.labels, values, strict=True))
    return all(own.get(name) == value for name, value in labels.items())
