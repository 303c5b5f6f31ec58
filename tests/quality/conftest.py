"""Components written by `losses new` and `networks new`, and forgotten after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vsetune.config.plugins import forget_plugins
from vsetune.quality.subjects import write_draft


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    forget_plugins()


@pytest.fixture
def draft(tmp_path: Path) -> Callable[..., Path]:
    """draft(kind, changes by file): the folder of `mine`, with pieces of its text replaced."""

    def write(kind: str, changes: dict[str, list[tuple[str, str]]] | None = None) -> Path:
        folder = write_draft(kind, "mine", tmp_path)[0].parent  # type: ignore[arg-type]
        for file, replaced in (changes or {}).items():
            text = (folder / file).read_text()
            for old, new in replaced:
                assert old in text, f"{file} has no {old!r}"
                text = text.replace(old, new)
            (folder / file).write_text(text)
        return folder

    return write
