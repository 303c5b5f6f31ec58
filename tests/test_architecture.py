"""The layout of the code: who may import whom, who owns an outside system, what is written where."""

from __future__ import annotations

import ast
import os
import platform
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "platform"
PACKAGE = SOURCE / "vsetune"

OWNERS = {
    "ray": ["study/"],
    "cloudpickle": ["api/notebook_classes.py"],
    "mlflow": ["records/mlflow_"],
    "optuna": ["search/"],
    "webdataset": ["data/"],
    "boto3": ["home/s3.py"],
    "starlette": ["board/serving"],
    "uvicorn": ["board/serving.py"],
    "pyarrow": ["training/embedding_files.py"],
    "spacy": ["data/captions/spacy_parser.py"],
    "typer": ["cli/"],
    "vl_convert": ["board/vega.py"],
    "fcntl": ["home/locks.py"],
    "hashlib": ["home/hashes.py"],
}
FILE_CALLS = {"replace", "rename", "renames", "link", "symlink", "fsync", "NamedTemporaryFile", "mkstemp"}
"""Of `os`, `tempfile` and `Path`: what writes a file whole, which home/whole_files.py does for everybody."""
OTHER_FILE_CALLS = {
    ("records/log.py", "fsync"): "a log that grows at its end is not written whole",
}
NO_COMPONENTS = {"losses/parts", "networks/parts", "networks/importing"}
"""Folders beside the components."""


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imported(path: Path) -> set[str]:
    """Full dotted names of the modules a file imports, wherever in the file they stand."""
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; import as vsetune.<folder>.<module>"
            for alias in node.names:
                inner = SOURCE.joinpath(*str(node.module).split("."), alias.name)
                is_module = inner.is_dir() or inner.with_suffix(".py").exists()
                found.add(f"{node.module}.{alias.name}" if is_module else str(node.module))
    return found


def module_of(path: Path) -> str:
    """`losses.lseh.spec`; a package is named like its folder, ours is the empty name."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


def test_a_package_imports_only_packages_below_it() -> None:
    """The order is in pyproject.toml, `tool.importlinter`."""
    program = Path(sys.executable).with_name("lint-imports")
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [program, "--no-cache"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_has_the_packages_in_this_order() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = project["tool"]["importlinter"]["contracts"]
    lines = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").splitlines()
    shown = [[word.strip(" `") for word in line.split("|")[1].split(",")] for line in lines if line.startswith("| `")]
    names = [[word.strip() for word in layer.split("|")] for layer in contract["layers"]]
    assert [row for row in shown if row in names] == names


def test_the_way_of_an_m_recall_is_that_of_the_page() -> None:
    """At most ten functions from the network to the board, all of which there are."""
    lines = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").splitlines()
    steps = [line for line in lines if re.match(r"\| \d+ \|", line)]
    assert [line.split()[1] for line in steps] == [str(number) for number in range(1, len(steps) + 1)]
    assert 2 <= len(steps) <= 10
    named = re.findall(r"`([\w.]+)` in `([\w/]+\.py)`", "\n".join(steps))
    assert len(named) >= len(steps)
    missing = [f"{name} in {file}" for name, file in named if name not in functions_of(tree_of(PACKAGE / file))]
    assert missing == []


def functions_of(module: ast.Module) -> set[str]:
    """Of a file: functions, and methods as `Class.method`."""
    found = {node.name for node in module.body if isinstance(node, ast.FunctionDef)}
    return found | {
        f"{node.name}.{method.name}" for node in module.body if isinstance(node, ast.ClassDef)
        for method in node.body if isinstance(method, ast.FunctionDef)
    }


def test_specs_and_study_files_are_read_without_torch() -> None:
    found = (module_of(path) for path in modules())
    names = [f"vsetune.{name}" for name in found if name.startswith("config") or name.endswith(".spec")]
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\nprint(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code, *names], env=environment, capture_output=True, text=True, check=True
    )
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert not loaded & {"torch", "ray", "mlflow", "optuna", "transformers", "scipy", "sklearn"}


def test_every_component_has_its_spec_beside_its_code() -> None:
    for kind, code in (("losses", "loss.py"), ("networks", "network.py")):
        for folder in (path for path in (PACKAGE / kind).iterdir() if (path / "__init__.py").exists()):
            if folder.relative_to(PACKAGE).as_posix() not in NO_COMPONENTS:
                assert {path.name for path in folder.glob("*.py")} >= {"__init__.py", "spec.py", code}, folder


def file_calls(path: Path) -> Iterator[str]:
    """Names of FILE_CALLS that a file calls or imports. `text.replace` takes two arguments, a path's takes one."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "tempfile"):
            yield from (alias.name for alias in node.names if alias.name in FILE_CALLS)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in FILE_CALLS:
            is_of_os = isinstance(node.func.value, ast.Name) and node.func.value.id == "os"
            is_of_path = len(node.args) == 1 and not node.keywords
            if is_of_os or node.func.attr != "replace" or is_of_path:
                yield node.func.attr


def test_files_are_written_whole_in_one_place() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in modules() if path != PACKAGE / "home" / "whole_files.py" for name in file_calls(path)
    }
    assert found == set(OTHER_FILE_CALLS)


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
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 40, f"{path}: logic belongs to vsetune.study"


def test_the_package_prints_nothing() -> None:
    for path in modules():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "print", f"{path.relative_to(ROOT)}:{node.lineno} calls print"
