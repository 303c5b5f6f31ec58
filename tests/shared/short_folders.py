"""Folders with short names, since sockets lie in them: `from short_folders import place`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def place() -> Iterator[Path]:
    """Open to the user of the database."""
    folder = Path(tempfile.mkdtemp(prefix="vs-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
