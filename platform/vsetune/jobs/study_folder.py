"""Where the folder of a study is: its journal, checkpoints, search, copies of plugins and results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vsetune.config.spec.paths import on_this_node
from vsetune.config.study.study_spec import StudySpec, TrackingSpec
from vsetune.tracking.records import StudyRecord


def study_folder(spec: StudySpec) -> Path:
    """On this node. ConfigError for what can be no path."""
    return _in(spec.tracking.folder, spec.study)


def folder_of(record: StudyRecord) -> Path:
    """The same of a recorded study, of whatever version."""
    return folder_told(record.config, record.name)


def folder_told(content: Mapping[str, Any], study: str) -> Path:
    """The same of a study file that is not checked yet: what is no folder's name in it is left to the check."""
    tracking = content.get("tracking")
    folder = tracking.get("folder") if isinstance(tracking, Mapping) else None
    return _in(folder if isinstance(folder, str) and folder else TrackingSpec().folder, study)


def _in(folder: str, study: str) -> Path:
    return Path(on_this_node(folder)) / study
