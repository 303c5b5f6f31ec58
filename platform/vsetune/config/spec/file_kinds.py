"""The command for each kind of file, identified by a key that only files of one kind have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vsetune.config.spec.base import Spec
from vsetune.errors import ConfigError

_KINDS = {
    "study": ("a study file", "vsetune study run"),
    "nightly": ("a nightly file", "vsetune nightly run"),
    "source": ("an ingest recipe", "vsetune data ingest"),
    "available_node_types": ("a cluster file", "ray up"),
}
"""For each kind of file: its name, and the command that takes it. No spec has the key of another kind."""


def require_kind(content: Mapping[str, Any], spec: type[Spec], *, where: str) -> None:
    """ConfigError in one line for a file of another kind, instead of a line for each of its keys."""
    wanted = next(key for key in _KINDS if key in spec.model_fields)
    found = next((key for key in _KINDS if key in content), wanted)
    if wanted in content or found == wanted:
        return
    kind, command = _KINDS[found]
    raise ConfigError(f"{where}: is {kind}, need {_KINDS[wanted][0]}; {command} takes it")
