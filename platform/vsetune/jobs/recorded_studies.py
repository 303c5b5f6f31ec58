"""Studies that a store has recorded, read back as they were written."""

from __future__ import annotations

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.study_spec import StudySpec
from vsetune.jobs.kept_plugins import load_kept
from vsetune.jobs.study_folder import folder_of
from vsetune.records.attempts import PLUGIN_TAG, StudyRecord


def study_of(record: StudyRecord) -> StudySpec:
    """The study, somebody's components in it loaded from the copies that it keeps.

    ConfigError for one of another version, StorageError where its copies are gone.
    """
    plugins = {
        tag.removeprefix(PLUGIN_TAG): sha256 for tag, sha256 in record.tags.items() if tag.startswith(PLUGIN_TAG)
    }
    if plugins:
        load_kept(plugins, folder_of(record), where=f"study {record.name}")
    return parse_spec(dict(record.config), StudySpec, where=f"study {record.name}")
