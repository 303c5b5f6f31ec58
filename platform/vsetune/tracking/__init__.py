"""The store of studies, trials and attempts: interface, in-memory version, MLflow adapter."""

from vsetune.tracking.opening import open_store
from vsetune.tracking.records import AttemptRecord, AttemptStart, AttemptStatus, StudyRecord, ValidationPoint
from vsetune.tracking.store import StudyStatus, TrackingStore

__all__ = [
    "AttemptRecord", "AttemptStart", "AttemptStatus", "StudyRecord", "StudyStatus", "TrackingStore",
    "ValidationPoint", "open_store",
]
