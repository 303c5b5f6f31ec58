"""Who may import whom. Change the table here and in docs/architecture.md together."""

from __future__ import annotations

import ast
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "platform"
PACKAGE = SOURCE / "vsetune"

LEAVES = {"config", "metrics", "losses", "networks", "data", "tracking"}
MAY_IMPORT = {
    "errors": set(),
    "config": {"errors"},
    "metrics": {"errors"},
    "losses": {"errors", "config"},
    "networks": {"errors", "config"},
    "data": {"errors", "config"},
    "tracking": {"errors", "config"},
    "training": {"errors", *LEAVES},
    "search": {"errors", "config", "metrics", "tracking"},
    "leaderboard": {"errors", "config", "metrics", "tracking"},
    "jobs": {"errors", *LEAVES, "training", "search", "leaderboard"},
    "cli": {"errors", *LEAVES, "training", "search", "leaderboard", "jobs"},
}
OWNERS = {
    "ray": ["jobs/"],
    "mlflow": ["tracking/mlflow_"],
    "optuna": ["search/"],
    "webdataset": ["data/"],
    "boto3": ["data/stored/storage.py"],
    "spacy": ["data/captions/spacy_parser.py"],
    "typer": ["cli/"],
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Full dotted names a file imports, wherever in the file they stand."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; import as vsetune.<folder>.<module>"
            yield node.module or ""


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_every_folder_has_a_row_in_the_table() -> None:
    parts = {part_of(path) for path in modules()} - {"__init__"}
    assert parts == set(MAY_IMPORT)


@pytest.mark.parametrize("part", sorted(MAY_IMPORT))
def test_a_folder_imports_only_what_its_row_allows(part: str) -> None:
    allowed = MAY_IMPORT[part] | {part}
    for path in modules():
        if part_of(path) != part:
            continue
        for name in imported(path):
            words = name.split(".")
            if words[0] == "vsetune" and len(words) > 1:
                assert words[1] in allowed, f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("library", sorted(OWNERS))
def test_an_outside_system_has_one_owner(library: str) -> None:
    for path in modules():
        where = path.relative_to(PACKAGE).as_posix()
        if library in {name.split(".")[0] for name in imported(path)}:
            assert any(where.startswith(owner) for owner in OWNERS[library]), f"{where} imports {library}"


def test_nothing_but_the_package_lies_in_the_source_root() -> None:
    found = {path.name for path in SOURCE.iterdir()} - {"__pycache__"}
    assert {name for name in found if not name.startswith(".") and not name.endswith(".egg-info")} == {"vsetune"}


def test_the_standard_platform_module_is_found_from_the_repository_root() -> None:
    code = "import platform, vsetune; assert platform.system(), platform.__file__; print(platform.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == Path(platform.__file__)


def test_no_script_is_named_like_a_library() -> None:
    names = {path.stem for folder in ("jobs", "benchmarks") for path in (ROOT / folder).glob("*.py")}
    assert not names & (set(OWNERS) | set(sys.stdlib_module_names) | {"torch", "numpy", "sklearn"})


def test_entry_points_stay_thin() -> None:
    for path in (ROOT / "jobs").glob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 40, f"{path}: logic belongs to vsetune.jobs"


def test_the_package_prints_nothing() -> None:
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "print", f"{path.relative_to(ROOT)}:{node.lineno} calls print"
