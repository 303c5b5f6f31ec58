"""How long the exporter's driver waits for MLflow: as long as something moves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from studied import BEGUN, OPENED

from vsetune.errors import StorageError
from vsetune.records.exporter import Exporter
from vsetune.records.log import LogWriter


class Slow:
    """An export that gives `answers` answers, a moment apart, before each event is there. refuses: from this event on.
    """

    def __init__(self, answers: int, *, breaks: bool = False, refuses: int = 99) -> None:
        self.number, self.answers, self.refused = -1, 0, list[str]()
        self._each, self._breaks, self._refuses = answers, breaks, refuses

    def advance(self) -> bool:
        if self.number == 1:
            return False
        for _ in range(self._each):
            threading.Event().wait(0.1)
            self.answers += 1
        if self._breaks:
            raise StorageError("away in the end")
        self.number += 1
        if self.number >= self._refuses:
            self.refused.append(f"event {self.number} is refused")
        return True


@contextmanager
def exporting(folder: Path, export: Slow) -> Iterator[Exporter]:
    log = LogWriter(folder)
    log.append(OPENED)
    log.append(BEGUN)
    exporter = Exporter(lambda: export, log)
    try:
        yield exporter
    finally:
        exporter.close()
        log.close()


def test_a_slow_store_is_waited_for_as_long_as_it_answers(tmp_path: Path) -> None:
    with exporting(tmp_path, Slow(12)) as exporter:
        assert (exporter.deliver(0.6), exporter.outage()) == (0, None)


def test_answers_to_tries_that_fail_in_the_end_are_no_progress(tmp_path: Path) -> None:
    with exporting(tmp_path, Slow(2, breaks=True)) as exporter:
        assert (exporter.deliver(0.6), exporter.outage()) == (2, "away in the end")


def test_events_that_are_refused_are_left_with_the_reason(tmp_path: Path) -> None:
    with exporting(tmp_path, Slow(0, refuses=1)) as exporter:
        assert (exporter.deliver(5.0), exporter.outage()) == (1, "event 1 is refused")
        assert (exporter.pending(), exporter.waiting()) == (1, 0)
