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


@dataclass(frozen=True)
class CommitRange:
    """The code of the last night without a change, and of the first one with it; revisions as `Night` has them."""

    good: str
    bad: str


def commits_in(between: CommitRange, *, repository: Path | None = None) -> list[str]:
    """`abc1234 its subject`, newest first and at most a handful; nothing where the code is the same.

    What no repository can tell is one line that names both revisions. repository: default that of this code.
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
    command = ["git", "-C", str(folder), "log", "--oneline", "--no-decorate", f"{good}..{bad}", "--"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_WAIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    lines = [one_line(line) for line in done.stdout.splitlines()]
    return lines or [f"the code went back from {good[:_SHORT]} to {bad[:_SHORT]}"]
