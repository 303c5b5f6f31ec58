"""Logs of studies in the home of a test, for fixtures: `from logged_studies import Logs, logs`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import StudyRecord
from vsetune.records.log import LogWriter
from vsetune.records.studies import folder_of_study
from vsetune.records.writer import StudyWriter


class Logs:
    """Each log is written by one process at a time."""

    def __init__(self) -> None:
        self._open: dict[str, LogWriter] = {}

    def opened(self, study: StudySpec) -> StudyWriter:
        """By another process, which begins the study or resumes it. What the former one added is there."""
        self.close(study.study)
        log = self._open[study.study] = LogWriter(folder_of_study(study.study))
        return begun(StudyWriter(log), study)

    def close(self, *names: str) -> None:
        """names: of studies; none for all."""
        for name in names or list(self._open):
            if name in self._open:
                self._open.pop(name).close()


def begun(writer: StudyWriter, study: StudySpec) -> StudyWriter:
    """The same writer, by which the study was begun or resumed."""
    writer.open_study(StudyRecord(study.study, study.fingerprint(), study.to_plain()), resume=True)
    return writer


@pytest.fixture
def logs() -> Iterator[Logs]:
    made = Logs()
    yield made
    made.close()
