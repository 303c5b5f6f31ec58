"""The version and the revision of this code, and where it is."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

__version__ = "0.2.0"

PACKAGE_FOLDER = Path(__file__).resolve().parent
REVISION_VARIABLE = "VSETUNE_REVISION"
"""The revision of code that was sent without its repository: to the nodes of a cluster, as a job."""
_REVISION = re.compile(r"[0-9a-f]{7,40}(\+changes)?")


def git_revision(folder: Path = PACKAGE_FOLDER) -> str:
    """Commit of the code in `folder`, with `+changes` when files differ from it.

    Outside a repository, and for an installed copy that merely lies inside one, the value of VSETUNE_REVISION, else
    `unknown`: the files that Ray sends with a job have no repository.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None or not _git(folder, "ls-files", "--", "."):
        given = os.environ.get(REVISION_VARIABLE, "")
        return given if _REVISION.fullmatch(given) else "unknown"
    return f"{commit}+changes" if _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".") else commit


def import_path() -> str:
    """PYTHONPATH for a new process, with this code first."""
    return os.pathsep.join([str(PACKAGE_FOLDER.parent), *filter(None, [os.environ.get("PYTHONPATH")])])


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
