"""Documentation and docstrings name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "platform" / "vsetune"
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "decisions").glob("*.md")])
ROOMS = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
NAMES = {path.name for folder in ("platform", "tests", "benchmarks", "jobs") for path in (ROOT / folder).rglob("*.py")}

_IN_FOLDER = re.compile(r"(?<![\w./~-])([\w<>*.-]+(?:/[\w<>*.-]+)+\.py)\b")
_FOLDER = re.compile(r"`([\w<>*]+(?:/[\w<>*]+)*/)`")
_ALONE = re.compile(r"`([\w-]+\.py)`")
_MODULE = re.compile(r"`vsetune\.(\w+(?:\.\w+)*)`")


def missing_paths(text: str, *, near: Path = ROOT) -> list[str]:
    """What the text calls a file or a room of ours and is none.

    `<name>` stands for any name, `my_...` is an example. near: the folder of the text.
    """
    paths = [*_IN_FOLDER.findall(text), *(path for path in _FOLDER.findall(text) if path.split("/")[0] in ROOMS)]
    missing = [path for path in paths if not path.startswith("my_") and not _exists(path, near)]
    missing += [name for name in _ALONE.findall(text) if name not in NAMES]
    return missing + [name for name in _MODULE.findall(text) if name.split(".")[0] in ROOMS and not _is_module(name)]


def _exists(path: str, near: Path) -> bool:
    pattern = re.sub(r"<\w+>", "*", path.rstrip("/"))
    return any(any(folder.glob(pattern)) for folder in (ROOT, PACKAGE, ROOT / "tests", near, near.parent))


def _is_module(name: str) -> bool:
    """A module or folder of a room, or something inside one."""
    path = PACKAGE.joinpath(*name.split("."))
    places = [path] if path.parent.parent == PACKAGE else [path, path.parent]
    return any(place.is_dir() or place.with_suffix(".py").exists() for place in places)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_of_a_page_exists(page: Path) -> None:
    assert missing_paths(page.read_text(encoding="utf-8"), near=page.parent) == []


def test_every_path_in_our_code_exists() -> None:
    folders = (PACKAGE, ROOT / "benchmarks", ROOT / "jobs", ROOT / "studies")
    files = [path for folder in folders for ending in ("*.py", "*.yaml") for path in folder.rglob(ending)]
    wrong = {
        path.relative_to(ROOT).as_posix(): missing
        for path in files if (missing := missing_paths(path.read_text(encoding="utf-8"), near=path.parent))
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("`losses/<name>/loss.py`, `losses/<name>/formula.py`", ["losses/<name>/formula.py"]),
        ("`config/losses/`, `config/study/`, `vse/`", ["config/losses/"]),
        ("`encoded.py`, `decoded.py`", ["decoded.py"]),
        ("`vsetune.data.captions.parses`, `vsetune.data.parses`, `vsetune.kind`", ["data.parses"]),
    ],
)
def test_a_path_that_leads_nowhere_is_found(text: str, missing: list[str]) -> None:
    assert missing_paths(text) == missing
