"""Which commits a change may come from."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import vsetune
from vsetune.config.spec.foreign_text import one_line

MOST_SUSPECTS = 5
_EDITED = "+changes"
_WAIT_S = 10
_SHORT = 12
_NO_CODE = ("docs", "tests", "*.md")
"""Of a repository: what no night runs."""


@dataclass(frozen=True)
class CommitRange:
    """The code of the last night without a change, and of the first one with it; revisions as `Night` has them."""

    good: str
    bad: str


def commits_in(between: CommitRange, *, repository: Path | None = None) -> list[str]:
    """`abc1234 its subject`, newest first and at most a handful, of commits that touched more than documents and tests;
    nothing where the code is the same.

    What no repository can tell is one line that names both revisions, and so is a range of documents and tests alone.
    repository: default that of this code.
    """
    good, bad = _commit(between.good), _commit(between.bad)
    edited = [f"{bad[:_SHORT]} with changes that are not committed"] if between.bad.endswith(_EDITED) else []
    if good == bad:
        return edited
    folder = Path(vsetune.__file__).parent if repository is None else repository
    found = _log(folder, good, bad)
    if found is None:
        return [*edited, f"the code changed from {good[:_SHORT]} to {bad[:_SHORT]}; no repository here knows both"]
    return [*edited, *found][:MOST_SUSPECTS]


def _commit(revision: str) -> str:
    return revision.removesuffix(_EDITED)


def _log(folder: Path, good: str, bad: str) -> Sequence[str] | None:
    if not (good.isalnum() and bad.isalnum()):
        return None
    code = [":/", *(f":(top,exclude){name}" for name in _NO_CODE)]
    touched, between = (_lines(folder, f"{good}..{bad}", paths) for paths in (code, []))
    if touched is None or between is None:
        return None
    if not between:
        return [f"the code went back from {good[:_SHORT]} to {bad[:_SHORT]}"]
    return touched or [f"no commit from {good[:_SHORT]} to {bad[:_SHORT]} touched code: documents and tests alone"]


def _lines(folder: Path, revisions: str, paths: Sequence[str]) -> Sequence[str] | None:
    """paths: only commits that touch one; all commits where there are none. None where git does not tell."""
    command = ["git", "-C", str(folder), "log", "--oneline", "--no-decorate", revisions, "--", *paths]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_WAIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return [one_line(line) for line in done.stdout.splitlines()] if done.returncode == 0 else None
