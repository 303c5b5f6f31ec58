"""Where the folder of a study is: its log, checkpoints, copies of plugins and results."""

from __future__ import annotations

from pathlib import Path

from vsetune.config.study.study_spec import StudySpec
from vsetune.records.attempts import StudyRecord
from vsetune.records.studies import folder_of_study


def study_folder(spec: StudySpec) -> Path:
    """On this node."""
    return folder_of_study(spec.study)


def folder_of(record: StudyRecord) -> Path:
    """The same of a recorded study."""
    return folder_of_study(record.name)
