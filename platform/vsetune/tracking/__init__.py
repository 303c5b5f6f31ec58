"""The store of studies, trials and attempts: interface, in-memory version, MLflow adapter, journal before it."""

from vsetune.tracking.journaled_store import JournaledStore
from vsetune.tracking.opening import open_journaled, open_store
from vsetune.tracking.records import AttemptRecord, AttemptStart, AttemptStatus, StudyRecord, ValidationPoint
from vsetune.tracking.store import StudyStatus, TrackingStore

__all__ = [
    "AttemptRecord", "AttemptStart", "AttemptStatus", "JournaledStore", "StudyRecord", "StudyStatus", "TrackingStore",
    "ValidationPoint", "open_journaled", "open_store",
]
