"""The public names: what `import vsetune` costs, that each name is there, and that type checkers see the same ones."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import vsetune
from vsetune.config.component_specs import LOSSES, NETWORKS

ROOT = Path(vsetune.__file__).parent


def declared(place: Path) -> set[str]:
    """Names that a module declares for type checkers alone."""
    found: set[str] = set()
    for node in ast.parse(place.read_text()).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for each in node.body:
                found |= {alias.name for alias in getattr(each, "names", [])}
                found |= {ast.unparse(each.target)} if isinstance(each, ast.AnnAssign) else set()
    return found


def test_the_import_is_quick_and_leaves_torch_alone() -> None:
    code = (
        "import sys, time; before = time.process_time(); import vsetune; spent = time.process_time() - before; "
        "heavy = {'torch', 'pandas', 'ray', 'mlflow', 'pydantic'} & {*sys.modules}; "
        "[vsetune.losses, vsetune.networks, vsetune.metrics, vsetune.UsageError]; "
        "print(spent, *heavy, *({'torch', 'pandas'} & {*sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT.parent)},
    )
    spent, *heavy = done.stdout.split()
    assert not heavy
    assert float(spent) <= 0.2


def test_every_name_is_there_and_type_checkers_see_the_same_ones() -> None:
    assert len(vsetune.__all__) == len(set(vsetune.__all__))
    assert declared(ROOT / "__init__.py") | {"losses", "metrics", "networks"} == {*vsetune.__all__}
    for name in vsetune.__all__:
        found = getattr(vsetune, name)
        assert inspect.getdoc(found), name
    assert {*vsetune.__all__} <= {*dir(vsetune)}
    with pytest.raises(AttributeError, match="nothing") as refused:
        vsetune.nothing  # noqa: B018
    assert (refused.value.name, refused.value.obj) == ("nothing", vsetune), "Python adds: Did you mean"


@pytest.mark.parametrize(("package", "registry"), [("losses", LOSSES), ("networks", NETWORKS)])
def test_every_component_has_its_class(package, registry) -> None:
    found = getattr(vsetune, package)
    *names, last = dir(found)
    assert last == "named"
    assert declared(ROOT / package / "__init__.py") == {*found.__all__} == {*names, last}
    assert sorted(getattr(found, name).component for name in names) == sorted(registry)
    with pytest.raises(AttributeError, match="no_such_one") as refused:
        found.no_such_one  # noqa: B018
    assert (refused.value.name, refused.value.obj) == ("no_such_one", found), "Python adds: Did you mean"


@pytest.mark.slow
def test_type_checkers_know_the_types(tmp_path: Path) -> None:
    """About a minute without a cache of mypy."""
    file = tmp_path / "user.py"
    file.write_text(
        "import vsetune\nreveal_type(vsetune.train(data='x'))\nreveal_type(vsetune.open_study('x').figure)\n"
        "reveal_type(vsetune.losses.LMH(margin=0.2))\nreveal_type(vsetune.metrics.recall(None).rsum)\n"
        "reveal_type(vsetune.networks.VSEpp(width=3, vocabulary_size=9))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", str(file)], capture_output=True, text=True, check=False, cwd=ROOT.parents[1],
        env=os.environ | {"MYPYPATH": str(ROOT.parent)},
    )
    shown = [line.partition('"')[2].rstrip('"').split(".")[-1] for line in done.stdout.splitlines() if "reveal" in line
             or "Revealed" in line]
    assert shown == ["Training", "Figure", "LMH", "float", "VSEpp"], done.stdout
