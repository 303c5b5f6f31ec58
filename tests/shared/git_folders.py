"""Git repositories for tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

_SETTINGS = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false"]


def git(folder: Path, *words: str) -> str:
    """The output of git in a folder."""
    command = ["git", "-C", str(folder), *_SETTINGS, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def committed(folder: Path, file: str, text: str | None, message: str = "") -> str:
    """The commit that gives a file this text, or removes it. message: default the text."""
    place = folder / file
    place.parent.mkdir(parents=True, exist_ok=True)
    if text is None:
        place.unlink()
    else:
        place.write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message or text or "removed")
    return git(folder, "rev-parse", "HEAD")
