"""Studies in the store, read back as they were recorded."""

from __future__ import annotations

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.study_spec import StudySpec
from vsetune.jobs.kept_plugins import load_kept
from vsetune.jobs.study_folder import folder_of
from vsetune.records.attempts import PLUGIN_TAG, StudyRecord


def study_of(record: StudyRecord) -> StudySpec:
    """The study of a record. Its plugins are loaded from the copies in the study's folder.

    ConfigError for a study of another version, StorageError if its copies are gone.
    """
    plugins = {
        tag.removeprefix(PLUGIN_TAG): sha256 for tag, sha256 in record.tags.items() if tag.startswith(PLUGIN_TAG)
    }
    if plugins:
        load_kept(plugins, folder_of(record), where=f"study {record.name}")
    return parse_spec(dict(record.config), StudySpec, where=f"study {record.name}")
