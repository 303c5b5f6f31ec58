"""Path of a study's folder, which has its log, checkpoints, copies of plugins and results."""

from __future__ import annotations

from pathlib import Path

from vsetune.config.study.study_spec import StudySpec
from vsetune.records.attempts import StudyRecord
from vsetune.records.studies import folder_of_study


def study_folder(spec: StudySpec) -> Path:
    """The folder of a study on this node."""
    return folder_of_study(spec.study)


def folder_of(record: StudyRecord) -> Path:
    """The folder of a recorded study on this node."""
    return folder_of_study(record.name)
