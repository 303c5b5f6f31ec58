"""What somebody who did not start a study may see of its run, and how he asks it to stop; through the store alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from vsetune.config.spec.secrets import shown_url
from vsetune.errors import UsageError
from vsetune.tracking.opening import is_memory, made_ready
from vsetune.tracking.store import StudyStatus


@dataclass(frozen=True)
class StudyState:
    """Of a study at a moment. Times are seconds since 1970.

    seen: its last sign of life, of the study or of any attempt. attempts_seen: that of every attempt by its id.
    stop_asked: the last request to stop, when and by whom, as text; it stays after it was followed.
    """

    status: Literal["running"] | StudyStatus
    seen: float
    attempts_seen: Mapping[str, float] = field(default_factory=dict)
    stop_asked: str | None = None


class StudyStates(ABC):
    """Beside the tracking store, in the same place. Every method raises UsageError for an unknown study, StorageError
    when the place cannot be reached.

    A request to stop is a note on the study, which its driver looks at every few seconds: whoever reaches the store can
    leave one, from any machine, whether the driver is a job or not. A driver follows only those that came after it
    started, so nothing has to be taken back.
    """

    @abstractmethod
    def state(self, study: str) -> StudyState:
        """As it is now."""

    @abstractmethod
    def stop_asked(self, study: str) -> str | None:
        """The last request to stop; None if there never was one. Cheap."""

    @abstractmethod
    def keep_page(self, study: str, name: str, page: str) -> None:
        """A text becomes the file `name` of the study's run, in place of an earlier one."""

    @abstractmethod
    def ask_to_stop(self, study: str, request: str) -> None:
        """Leave a request: a text that no earlier one had, in one line for people."""


def open_states(uri: str) -> StudyStates:
    """Of the store behind a URI, which is made as by `open_store`. UsageError for one that lives in its process alone,
    StorageError where none answers."""
    if is_memory(uri):
        raise UsageError(f"tracking uri {uri}: is seen by its own process alone; name a database or a server")
    made_ready(uri, None)
    from vsetune.tracking.mlflow_study_state import MlflowStudyStates

    return MlflowStudyStates(uri, shown_uri=shown_url(uri))
