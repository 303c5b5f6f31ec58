"""What of a nightly sweep stands in the tracking store beside its studies: one run per night."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class NightRun:
    """A night as people compare it. date: ISO day. started, ended: Unix seconds.

    metrics: finite numbers by name. tags: short texts by name. note: Markdown shown on top.
    """

    sweep: str
    date: str
    started: float
    ended: float
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    note: str


class NightRuns(ABC):
    """Where nights are kept. A night that is kept again takes the place of the earlier one of its date.

    The experiment of a sweep is no study: lists of studies and leaderboards know nothing of it.
    """

    @abstractmethod
    def keep(self, night: NightRun) -> str:
        """Make the night's run, finished; its id. StorageError, UsageError, one line."""

    @abstractmethod
    def keep_files(self, run_id: str, files: Mapping[str, str]) -> None:
        """Files of a run, by name, in place of earlier ones of the same names. StorageError, UsageError, one line."""
