"""A mistake that many cells share is told once, with the cells that have it."""

from __future__ import annotations

import pytest

from vsetune.config.study.cells import resolve_cells, told_once
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import ConfigError, Problem


def test_a_range_that_a_grid_cannot_combine_is_told_once_for_all_cells() -> None:
    study = StudySpec.model_validate({
        "study": "mine", "data": {"path": "data/scenes"}, "networks": [{"name": "vsepp"}, {"name": "scan"}],
        "losses": [{"name": name, "search": {"margin": {"low": 0.1, "high": 0.3}}} for name in ("lmh", "lsh", "lseh")],
        "search": {"sampler": "grid"},
    })
    with pytest.raises(ConfigError) as refused:
        resolve_cells(study, where="mine.yaml")
    (line,) = refused.value.problems
    assert line.startswith(
        "mine.yaml: cells vsepp.lmh, vsepp.lsh, vsepp.lseh, scan.lmh, scan.lsh and 1 more: search.sampler: grid needs"
    )
    assert refused.value.problem.code == "VSE-C540"


def test_only_equal_problems_share_a_line_and_words_before_another_problem_are_left_out() -> None:
    lines = [
        "f: cell a: reads photographs: model: /nowhere", Problem("f: cell a: model: /nowhere", "VSE-C092"),
        "f: cell b: model: /nowhere", "f: cell b: margin: got 2", "f: data.path: gone", "f: data.path: gone",
    ]
    assert told_once(lines, "f") == [
        "f: cells a, b: model: /nowhere", "f: cell b: margin: got 2", "f: data.path: gone",
    ]
    assert told_once(lines[1:2], "f") == ["f: cell a: model: /nowhere"]
