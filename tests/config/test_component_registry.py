"""A component is known by the folder it lies in."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from vsetune.config.component_specs import LossSpec
from vsetune.config.registry import Registry
from vsetune.config.spec.base import did_you_mean

SPEC = """
from typing import ClassVar, Literal
from vsetune.config.component_specs import LossSpec

class Spec(LossSpec):
    name: Literal["{name}"] = "{name}"
"""


def test_a_folder_with_a_spec_is_all_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("plain", "packaged"):
        folder = tmp_path / "rooms_of_a_test" / name
        folder.mkdir(parents=True)
        (folder / "spec.py").write_text(SPEC.format(name=name))
    (tmp_path / "rooms_of_a_test" / "packaged" / "__init__.py").touch()
    (tmp_path / "rooms_of_a_test" / "parts").mkdir()
    (tmp_path / "rooms_of_a_test" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    try:
        registry = Registry("loss", LossSpec, package="rooms_of_a_test")
        assert list(registry) == ["packaged", "plain"]
    finally:
        for module in [module for module in sys.modules if module.startswith("rooms_of_a_test")]:
            del sys.modules[module]


def test_a_name_with_the_same_letters_is_meant_before_one_that_is_as_close() -> None:
    assert did_you_mean("lhm", ["lsh", "lmh"]) == "did you mean lmh? "
    assert did_you_mean("lse", ["lmh", "lseh"]) == "did you mean lseh? "
    assert did_you_mean("info", ["lmh", "lseh"]) == ""
