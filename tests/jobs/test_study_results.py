"""What a study leaves at its end, and what it says where there is nothing to leave."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from vsetune.jobs.study_results import write_results


def test_a_study_without_a_validation_says_once_that_it_is_about_the_leaderboard() -> None:
    prepared: Any = SimpleNamespace(spec=SimpleNamespace(baseline="lmh"))
    found = write_results(prepared, [], None)
    assert found.board is None
    assert found.remark == "this study has no attempts yet; wait for its first validation"
