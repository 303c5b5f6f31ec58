"""Where output goes: results to stdout, everything said to a person on the way to stderr."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rich.console import Console

from vsetune.errors import StorageError

results = Console()
messages = Console(stderr=True)


def print_json(plain: Any) -> None:
    """Machine-readable results, one JSON document on stdout."""
    results.out(json.dumps(plain, indent=2, ensure_ascii=False), highlight=False)


def write_text(path: Path, text: str) -> None:
    """A file with its folders, all of it or nothing. StorageError in one line."""
    temporary = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StorageError(f"{path}: cannot be written ({error.strerror}); choose another place") from error
