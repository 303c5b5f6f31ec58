"""Who may import whom. Change the table here and in docs/architecture.md together."""

from __future__ import annotations

import ast
import os
import platform
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "platform"
PACKAGE = SOURCE / "vsetune"

LOSS_SPECS = (
    "losses.*.spec", "losses.loss_spec", "losses.loss_catalogue", "losses.parts.spec_fields",
    "losses.weighted_sum.sum_spec",
)
NETWORK_SPECS = (
    "networks.*.spec", "networks.network_spec", "networks.network_catalogue", "networks.parts.backbone_spec",
    "networks.parts.network_fields",
)
COMPONENT_SPECS = {"errors", "config.spec", "config.components", "config.sources"}
ROWS: list[tuple[tuple[str, ...], set[str]]] = [
    (("errors",), set()),
    (("files",), {"errors"}),
    (("config.spec",), {"errors", "files"}),
    (("object_storage",), {"errors", "files", "config.spec"}),
    (("config.components",), {"errors", "files", "config.spec"}),
    (("config.sources",), {"errors", "files", "config.spec", "config.components"}),
    (LOSS_SPECS, COMPONENT_SPECS),
    (NETWORK_SPECS, COMPONENT_SPECS),
    (("plugins",), {*COMPONENT_SPECS, *LOSS_SPECS, *NETWORK_SPECS}),
    (("config.study",), {*COMPONENT_SPECS, *LOSS_SPECS, *NETWORK_SPECS, "plugins"}),
    (("metrics",), {"errors"}),
    (("losses",), {*COMPONENT_SPECS, *LOSS_SPECS}),
    (("networks",), {"files", *COMPONENT_SPECS, *NETWORK_SPECS}),
    (("data.progress", "data.devices", "data.freed_memory"), {"errors"}),
    (("data.terminal_progress",), {"data.progress"}),
    (("data.stored",), {"errors", "files", "config.spec", "config.sources", "object_storage"}),
    (("data.captions",),
     {"errors", "files", "config.spec", "config.sources", "object_storage", "data.progress", "data.devices",
      "data.stored"}),
    (("data.batches",), {"errors", "config.spec", "config.sources", "data.stored", "data.captions"}),
    (("data.making",),
     {"errors", "files", "config.spec", "config.components", "config.sources", "plugins", "object_storage",
      "data.progress", "data.devices", "data.freed_memory", "data.stored", "data.captions"}),
    (("data.looking",),
     {"errors", "files", "config.spec", "config.sources", "object_storage", "data.stored", "data.captions",
      "data.batches"}),
    (("scoring",),
     {"errors", "config", "metrics", "networks", "data.devices", "data.stored", "data.captions", "data.batches"}),
    (("records",), {"errors", "files", "config.spec", "object_storage"}),
    (("training",),
     {"errors", "files", "config", "plugins", "metrics", "losses", "networks", "data.freed_memory",
      "data.stored", "data.captions", "data.batches", "scoring", "records"}),
    (("quality",), {"errors", "files", "config", "plugins", "losses", "networks"}),
    (("explanations",),
     {"config.sources", "config.study", "metrics", "networks", "data.stored", "data.looking", "scoring",
      "training.trained"}),
    (("search",), {"errors", "files", "config.spec", "config.study", "metrics"}),
    (("leaderboard",), {"errors", "files", "metrics", "records"}),
    (("jobs",),
     {"errors", "files", "config", "plugins", "object_storage", "metrics", "losses", "networks", "data", "scoring",
      "records", "training", "search", "leaderboard"}),
    (("serving",),
     {"errors", "networks.encoded", "networks.evaluation_mode", "networks.inputs", "data.stored", "scoring",
      "jobs.model_files"}),
    (("explaining_search",),
     {"errors", "config", "metrics", "records", "search", "leaderboard", "jobs.cell_budget", "jobs.range_ends",
      "jobs.recorded_studies"}),
    (("nightly.measures", "nightly.night", "nightly.report", "nightly.judging"), {"errors"}),
    (("nightly",),
     {"errors", "files", "config", "plugins", "object_storage", "metrics", "data", "scoring", "records", "training",
      "leaderboard", "jobs", "nightly.measures", "nightly.night", "nightly.report", "nightly.judging"}),
    (("cli",),
     {"errors", "files", "config", "plugins", "object_storage", "metrics", "losses", "networks", "data", "scoring",
      "records", "training", "explanations", "quality", "search", "leaderboard", "jobs", "explaining_search",
      "nightly"}),
]
"""(modules, what they may import beside one another), from the bottom of the house up. A name covers all below it, `*`
is one word; a module belongs to the row with the longest name that covers it."""

OWNERS = {
    "ray": ["jobs/"],
    "mlflow": ["records/mlflow_"],
    "optuna": ["search/"],
    "webdataset": ["data/"],
    "boto3": ["object_storage/s3.py"],
    "starlette": ["leaderboard/serving.py"],
    "uvicorn": ["leaderboard/serving.py"],
    "spacy": ["data/captions/spacy_parser.py"],
    "typer": ["cli/"],
    "vl_convert": ["leaderboard/chart_library.py"],
    "fcntl": ["files/locks.py"],
    "hashlib": ["files/hashes.py"],
}
FILE_CALLS = {"replace", "rename", "renames", "link", "symlink", "fsync", "NamedTemporaryFile", "mkstemp"}
"""Of `os`, `tempfile` and `Path`: what writes a file whole, which files/whole_files.py does for everybody."""
OTHER_FILE_CALLS = {
    ("object_storage/mirror.py", "link"): "keeps the content of a file that is replaced; nothing is written",
    ("records/log.py", "fsync"): "a log that grows at its end is not written whole",
}
OFTEN_USED_NAMES = {"spec.py", "loss.py", "network.py", "released.py", "__init__.py"}
NO_COMPONENTS = {"losses/parts", "losses/weighted_sum", "networks/parts", "networks/importing"}
"""Folders beside the components. A weighted sum is written as a mapping and has no name in the catalogue."""


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path) -> Iterator[str]:
    """Full dotted names of the modules a file imports, wherever in the file they stand."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; import as vsetune.<folder>.<module>"
            for alias in node.names:
                inner = SOURCE.joinpath(*str(node.module).split("."), alias.name)
                is_module = inner.is_dir() or inner.with_suffix(".py").exists()
                yield f"{node.module}.{alias.name}" if is_module else str(node.module)


def module_of(path: Path) -> str:
    """`losses.lseh.spec`; a package is named like its folder, ours is the empty name."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


def covers(name: str, module: str) -> bool:
    ours, words = name.split("."), module.split(".")
    return len(ours) <= len(words) and all(one in ("*", word) for one, word in zip(ours, words, strict=False))


def row_of(module: str) -> int | None:
    """The place in ROWS of a module, None for one that no row covers."""
    found = [
        (len(name.split(".")), place) for place, (names, _) in enumerate(ROWS) for name in names if covers(name, module)
    ]
    return max(found)[1] if found else None


def wrong_imports(module: str, names: Iterable[str]) -> list[str]:
    """Those of our modules among `names` that the row of this one does not allow."""
    row = row_of(module)
    allowed = set() if row is None else ROWS[row][1]
    ours = [name.removeprefix("vsetune.") for name in names if name.startswith("vsetune.")]
    return [
        name for name in ours
        if not any(covers(one, name) for one in allowed) and (row is None or row_of(name) != row)
    ]


def test_every_module_has_a_row_in_the_table() -> None:
    without = {module_of(path) for path in modules() if row_of(module_of(path)) is None}
    assert without == {"", "config", "data"}


def test_every_row_covers_something() -> None:
    found = [module_of(path) for path in modules()]
    for names, _ in ROWS:
        for name in names:
            assert any(covers(name, module) for module in found), f"no module is called {name}"


def test_the_page_has_the_same_rows() -> None:
    lines = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").splitlines()
    rooms = [word for line in lines if line.startswith("| `") for word in line.split("|")[1].split("`")[1::2]]
    names = [name for row, _ in ROWS for name in row if row not in (LOSS_SPECS, NETWORK_SPECS)]
    assert [room for room in rooms if room in names] == names


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


def test_arrows_point_up_the_table_only() -> None:
    for place, (names, allowed) in enumerate(ROWS):
        for name in allowed:
            rows = [row for row, (others, _) in enumerate(ROWS) if any(covers(name, other) for other in others)]
            above = rows or [row_of(name)]
            assert all(row is not None and row < place for row in above), f"{names} may import {name} from below"


def test_a_module_imports_only_what_its_row_allows() -> None:
    wrong = {
        path.relative_to(ROOT).as_posix(): names
        for path in modules() if (names := wrong_imports(module_of(path), imported(path)))
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("module", "name", "is_wrong"),
    [
        ("config.study.cells", "losses.lseh.spec", False),
        ("config.study.cells", "losses.lseh.loss", True),
        ("config.study.cells", "networks.network_building", True),
        ("config.spec.base", "config.spec.paths", False),
        ("config.spec.base", "config.study.cells", True),
        ("losses.lseh.spec", "losses.parts.spec_fields", False),
        ("losses.lseh.spec", "losses.lsh.loss", True),
        ("losses.lseh.loss", "losses.lseh.spec", False),
        ("losses.lseh.loss", "networks.encoded", True),
        ("data.captions.parses", "data.making.ingest", True),
        ("explanations.gallery", "training.trained", False),
        ("explanations.gallery", "training.step", True),
        ("", "errors", True),
    ],
)
def test_the_row_with_the_longest_name_decides(module: str, name: str, is_wrong: bool) -> None:
    assert wrong_imports(module, [f"vsetune.{name}", "torch"]) == ([name] if is_wrong else [])


def test_specs_and_study_files_are_read_without_torch() -> None:
    torch_free = {row_of(name) for name in ("config.spec", "config.components", "config.sources", "config.study",
                                            LOSS_SPECS[0], NETWORK_SPECS[0])}
    names = [f"vsetune.{module_of(path)}" for path in modules() if row_of(module_of(path)) in torch_free]
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\nprint(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code, *names], env=environment, capture_output=True, text=True, check=True
    )
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert not loaded & {"torch", "ray", "mlflow", "optuna", "transformers", "scipy", "sklearn"}


def test_no_two_files_have_the_same_name() -> None:
    counts = Counter(path.name for path in modules() if path.name not in OFTEN_USED_NAMES)
    assert [name for name, count in counts.items() if count > 1] == []


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
        for path in modules() if path != PACKAGE / "files" / "whole_files.py" for name in file_calls(path)
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
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 40, f"{path}: logic belongs to vsetune.jobs"


def test_the_package_prints_nothing() -> None:
    for path in modules():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "print", f"{path.relative_to(ROOT)}:{node.lineno} calls print"
