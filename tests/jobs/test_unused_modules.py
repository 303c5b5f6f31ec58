"""A module that is imported when used: nobody notices, except that it loads late or never."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import pytest

from vsetune.jobs.unused_modules import UnusedModule, import_when_used, submodules_alone


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "spared_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("from . import inner\nvalue = 1\n")
    (folder / "inner.py").write_text("import spared_package\nhas_value = hasattr(spared_package, 'value')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "spared_package"]:
        del sys.modules[name]


def test_it_is_imported_twice_without_loading_and_loads_when_something_of_it_is_used(package: Path) -> None:
    import_when_used("spared_package")
    first, second = importlib.import_module("spared_package"), __import__("spared_package")
    assert type(first) is UnusedModule
    assert first.__file__ == str(package / "__init__.py")
    assert "spared_package.inner" not in sys.modules
    assert first.value == 1
    assert type(first) is ModuleType
    assert first is second is sys.modules["spared_package"]
    assert not first.inner.has_value, "a module that is loading has no more than it has come to"


@pytest.mark.parametrize("alone", [False, True])
def test_submodules_load_it_first_unless_they_are_imported_alone(package: Path, alone: bool) -> None:
    (package / "__init__.py").write_text("value = 1\n")
    (package / "inner.py").write_text("")
    (package / "later.py").write_text("")
    import_when_used("spared_package")
    with submodules_alone("spared_package") if alone else nullcontext():
        importlib.import_module("spared_package.inner")
    assert ("value" in vars(sys.modules["spared_package"])) != alone
    importlib.import_module("spared_package.later")
    assert "value" in vars(sys.modules["spared_package"])


def test_what_fails_when_it_loads_is_raised_and_may_be_tried_again(package: Path) -> None:
    (package / "__init__.py").write_text("raise OSError('the disk is away')\n")
    import_when_used("spared_package")
    module = importlib.import_module("spared_package")
    with pytest.raises(OSError, match="the disk is away"):
        module.value  # noqa: B018
    (package / "__init__.py").write_text("value = 'it is back again'\n")
    assert module.value == "it is back again"


def test_what_is_there_or_is_not_installed_stays_as_it_is() -> None:
    import_when_used("json")
    assert type(sys.modules["json"]) is ModuleType
    import_when_used("no_such_module_of_anybody")
    assert "no_such_module_of_anybody" not in sys.modules
