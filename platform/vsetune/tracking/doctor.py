"""What is wrong with the records of a study, and how it is mended; told here, found in `mlflow_doctor.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vsetune.config.spec.secrets import shown_url
from vsetune.errors import UsageError
from vsetune.tracking.opening import is_memory, made_ready
from vsetune.tracking.records import AttemptStart

SILENT_AFTER_S = 24 * 3600.0
"""A running attempt that has shown no life for so long has no driver any more, as `close_stale` has it."""
_WORTH = ("running", "killed", "failed", "pruned", "finished")

WeightsOf = Callable[[AttemptStart], Path | None]
"""Where the best weights of a trial lie outside the store, or None."""


@dataclass(frozen=True)
class Finding:
    """where: study, run. what: is wrong. how: it is mended, a sentence that says what `mend` does, or what a person has
    to do where `mend` is None."""

    where: str
    what: str
    how: str
    mend: Callable[[], None] | None = None

    @property
    def line(self) -> str:
        """For people."""
        return f"{self.where}: {self.what}; {'--mend' if self.mend else 'by hand'}: {self.how}"


class Doctor(ABC):
    """Examines what a store keeps of studies. Runs of a driver that lives are left alone: they are half-written by
    nature."""

    @abstractmethod
    def examine(self, study: str | None, *, weights: WeightsOf, now: float | None = None) -> list[Finding]:
        """Of one study, or of all. Changes nothing. UsageError for an unknown study, StorageError when the store cannot
        be read; a `mend` raises what the store raises when it is written. now: seconds since 1970; default: the clock.
        """


def doctor_of(uri: str) -> Doctor:
    """For the store behind a URI. StorageError where none answers."""
    if is_memory(uri):
        raise UsageError(f"tracking uri {uri}: lives and dies with its process; name a database or a server")
    made_ready(uri, None)
    from vsetune.tracking.mlflow_doctor import MlflowDoctor

    return MlflowDoctor(uri, shown_uri=shown_url(uri))


def worth(status: str, points: int) -> tuple[int, int]:
    """Of two runs of one attempt the one with the larger worth is kept: it got further."""
    return (_WORTH.index(status) if status in _WORTH else -1, points)
