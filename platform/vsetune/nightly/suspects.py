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
_CODE = (":/", ":(top,exclude)docs", ":(top,exclude)tests", ":(top,exclude)*.md")
"""Paths of a repository that a night runs."""


def suspects_between(good: str, bad: str, *, repository: Path | None = None) -> list[str]:
    """At most `MOST_SUSPECTS` lines `abc1234 its subject`, newest first; none where the code is the same.

    good, bad: revisions of the last night without a change and of the first night with it, as in `Night`. One line with
    both revisions where git names no such commit. repository: default that of this code.
    """
    edited = [f"{bad[:_SHORT]} with changes that are not committed"] if bad.endswith(_EDITED) else []
    good, bad = good.removesuffix(_EDITED), bad.removesuffix(_EDITED)
    if good == bad:
        return edited
    found = _commits(good, bad, repository or PACKAGE_FOLDER) if good.isalnum() and bad.isalnum() else []
    unnamed = f"the code changed from {good[:_SHORT]} to {bad[:_SHORT]}; git names no commit that changes what runs"
    return [*edited, *(found or [unnamed])][:MOST_SUSPECTS]


def _commits(good: str, bad: str, repository: Path) -> list[str]:
    """A line for each commit; none where git fails."""
    words = ["log", "--no-merges", "--format=%h %s", f"{good}..{bad}", "--", *_CODE]
    try:
        done = subprocess.run(
            ["git", "-C", str(repository), *words], capture_output=True, check=True, timeout=_WAIT_S
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [one_line(line) for line in done.stdout.decode(errors="replace").splitlines()]
