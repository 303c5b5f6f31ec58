"""Export of a process's gauges to Prometheus: values are put on a board, and a thread passes them to Ray regularly.

Ray collects the gauges of all processes of a node and serves them there, where Prometheus finds them; vsetune opens no
port. Putting values is an assignment in memory: it does not wait and cannot fail. An error while values are passed to
Ray ends the export of this process with one warning, and nothing else.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Any

from ray.util import metrics as ray_metrics

from vsetune.study.exported_metrics import ExportedMetric, Samples

HAND_OVER_EVERY_S = 5.0
"""Shorter than the 10 s between Ray's collections, because Ray drops gauges that are not set again."""

_log = logging.getLogger(__name__)

Recorder = Callable[[ExportedMetric, float, dict[str, str]], None]
"""Receives the present value of a gauge, with its labels."""


class RayRecorder:
    """Passes values to Ray, to which this process must be connected."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def __call__(self, metric: ExportedMetric, value: float, labels: dict[str, str]) -> None:
        if metric.name not in self._known:
            self._known[metric.name] = ray_metrics.Gauge(
                metric.name, description=metric.help, tag_keys=metric.labels
            )
        self._known[metric.name].set(value, tags=labels)


class MetricsBoard:
    """The gauges of this process. Any thread may write. `start` begins to pass values on, `close` ends it."""

    def __init__(self, record: Recorder | None = None, *, every_s: float = HAND_OVER_EVERY_S) -> None:
        """record: None passes values to Ray, which must be connected when `start` is called. every_s: seconds."""
        self._record: Recorder = record or RayRecorder()
        self._every_s = every_s
        self._samples: dict[ExportedMetric, Callable[[], Samples]] = {}
        self._before_each: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def put(self, metric: ExportedMetric, samples: Samples | Callable[[], Samples]) -> None:
        """Sets a gauge, in place of all values that it had. Values that are not finite are left out.

        samples: a function is called each time that values are passed on, for values that change between reports.
        """
        self._samples[metric] = samples if callable(samples) else lambda: samples

    def each_time(self, look: Callable[[], None]) -> None:
        """Adds a function that the board's thread calls each time before it passes values on. Only before `start`."""
        self._before_each.append(look)

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
        """Passes on the present values of all gauges."""
        for look in self._before_each:
            look()
        for metric, read in self._samples.copy().items():
            for values, value in read().items():
                if math.isfinite(value):
                    self._record(metric, float(value), dict(zip(metric.labels, values, strict=True)))

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
