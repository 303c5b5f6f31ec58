"""Where relative paths of a study lead: one home folder, the same for the shell and for cluster jobs."""

from __future__ import annotations

import os
from pathlib import Path

HOME_VARIABLE = "VSETUNE_HOME"


def home() -> Path:
    """The folder for data and results: $VSETUNE_HOME, or ~/vsetune. On a cluster, a folder that every node sees."""
    return Path(os.environ.get(HOME_VARIABLE) or Path.home() / "vsetune").expanduser().absolute()


def under_home(path: str) -> str:
    """An absolute path or URL as it is; a relative one under `home()`."""
    if "://" in path:
        return path
    return str(home() / Path(path).expanduser())
