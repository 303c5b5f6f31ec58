"""The blocks of docs/python.md run as they stand there, one after another."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from trials_here import without_ray
from written_pages import blocks

import vsetune

PAGE = Path(vsetune.__file__).parents[2] / "docs" / "python.md"


@pytest.fixture
def notebook() -> Iterator[ModuleType]:
    module = ModuleType("cells_of_a_page")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def test_the_page_runs_from_top_to_bottom(notebook, monkeypatch) -> None:
    without_ray(monkeypatch)
    for number, block in enumerate(blocks(PAGE)):
        name = f"<block {number}>"
        linecache.cache[name] = (len(block.text), None, block.text.splitlines(keepends=True), name)
        exec(compile(block.text, name, "exec"), vars(notebook))
    assert {*notebook.recorded.board["loss"]} == {"lmh", "info_nce", "smooth"}
    assert notebook.vectors.captions.shape[1] == 16
    assert notebook.images.grad.abs().sum() > 0  # the loss of the last block went backwards
