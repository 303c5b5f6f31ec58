"""The commits between two nights that change more than documents and tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

from vsetune.errors import one_line
from vsetune.version import PACKAGE_FOLDER

MOST_SUSPECTS = 5
_EDITED = "+changes"
_WAIT_S = 10
_SHORT = 12
_NO_CODE = ("docs", "tests", "*.md")
"""Paths of a repository that no night runs."""


def suspects_between(good: str, bad: str, *, repository: Path | None = None) -> list[str]:
    """At most `MOST_SUSPECTS` lines `abc1234 its subject`, newest first; none where the code is the same.

    good, bad: revisions of the last night without a change and of the first night with it, as in `Night`. One line with
    both revisions where git does not know them, or no commit changes what runs. repository: default that of this code.
    """
    is_edited = bad.endswith(_EDITED)
    good, bad = good.removesuffix(_EDITED), bad.removesuffix(_EDITED)
    edited = [f"{bad[:_SHORT]} with changes that are not committed"] if is_edited else []
    if good == bad:
        return edited
    folder, between = PACKAGE_FOLDER if repository is None else repository, f"from {good[:_SHORT]} to {bad[:_SHORT]}"
    code = [":/", *(f":(top,exclude){name}" for name in _NO_CODE)]
    asked = good.isalnum() and bad.isalnum()
    touched = _git(folder, "log", "--no-merges", "--format=%h %s", f"{good}..{bad}", "--", *code) if asked else None
    if touched is None:
        return [*edited, f"the code changed {between}; no repository here knows both"]
    found = [one_line(line) for line in touched.splitlines()]
    if not found:
        went_back = not _git(folder, "rev-list", "-1", f"{good}..{bad}")
        found = [f"the code went back {between}" if went_back else f"no commit {between} changes what runs"]
    return [*edited, *found][:MOST_SUSPECTS]


def _git(folder: Path, *words: str) -> str | None:
    """The output of git; None where it fails."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=False, timeout=_WAIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None
