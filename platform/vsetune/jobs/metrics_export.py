"""What a process tells Prometheus: values stand on a board, and a thread hands them to Ray every few seconds.

Ray collects the metrics of all processes of a node and serves them there, where Prometheus finds them; we open no port.
Setting a value is an assignment in memory, whoever reads it or not: it waits for nothing and cannot fail. What goes
wrong when Ray takes the values ends the export of this process with one warning, and nothing else.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Any, Protocol

from ray.util import metrics as ray_metrics

from vsetune.jobs.exported_metrics import ExportedMetric

HAND_OVER_EVERY_S = 5.0
"""Below the 10 s at which Ray collects: a gauge that was not set anew since is gone."""

_log = logging.getLogger(__name__)
Series = tuple[ExportedMetric, tuple[str, ...]]


class Recorder(Protocol):
    """Takes a value of a series: of a gauge what it is now, of a counter what is to be added."""

    def __call__(self, metric: ExportedMetric, value: float, labels: dict[str, str]) -> None: ...


class RayRecorder:
    """Hands values to the Ray process that we are part of."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def __call__(self, metric: ExportedMetric, value: float, labels: dict[str, str]) -> None:
        known = self._known.get(metric.name)
        if known is None:
            make = ray_metrics.Gauge if metric.kind == "gauge" else ray_metrics.Counter
            name = metric.name.removesuffix("_total")  # Prometheus gets it back from Ray
            known = self._known[metric.name] = make(name, description=metric.help, tag_keys=metric.labels)
        if metric.kind == "gauge":
            known.set(value, tags=labels)
        else:
            known.inc(value, tags=labels)


class MetricsBoard:
    """The series of this process. Any thread may write; `start` begins to hand over, `close` forgets everything."""

    def __init__(self, record: Recorder | None = None, *, every_s: float = HAND_OVER_EVERY_S) -> None:
        """record: None hands over to Ray, which must be connected when `start` is called."""
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
        """What a gauge is from now on, until it is set again or dropped. One that is not finite is left out."""
        series = _series(metric, labels)
        with self._lock:
            if math.isfinite(value):
                self._gauges[series] = float(value)
            else:
                self._gauges.pop(series, None)

    def sample(self, metric: ExportedMetric, read: Callable[[], float], **labels: str) -> None:
        """A gauge that is read each time before it is handed over, by our thread: for what changes between reports."""
        with self._lock:
            self._samples[_series(metric, labels)] = read

    def each_time(self, look: Callable[[], None]) -> None:
        """Called before each handing over, by our thread; before `start` only."""
        self._before_each.append(look)

    def add(self, metric: ExportedMetric, amount: float, **labels: str) -> None:
        """Raises a counter. An amount of 0 or less adds nothing."""
        if amount > 0 and math.isfinite(amount):
            series = _series(metric, labels)
            with self._lock:
                self._added[series] = self._added.get(series, 0.0) + amount

    def drop(self, metric: ExportedMetric, **labels: str) -> None:
        """Forgets the gauges of a metric that have these labels."""
        with self._lock:
            known = [series for series in (*self._gauges, *self._samples) if series[0] == metric]
            for series in [series for series in known if _has(series, labels)]:
                self._gauges.pop(series, None)
                self._samples.pop(series, None)

    def start(self) -> None:
        """Hands over from now on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="vsetune-metrics", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Hands over a last time, then stops. Waits a second at most."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def hand_over(self) -> None:
        """All gauges as they are now, and what was added to counters since the last time."""
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
