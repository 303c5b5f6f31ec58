"""What a measuring process tells of a cell that fails."""

from __future__ import annotations

from pathlib import Path

from vsetune.study.planning.cell_measuring import measured


def test_a_cell_that_fails_is_a_problem_in_one_line(tmp_path: Path) -> None:
    trial = {
        "study": "s", "trial": "plan", "cell": "vsepp.lmh", "data": {"path": str(tmp_path / "nowhere")},
        "network": {"name": "vsepp"}, "loss": {"name": "lmh"}, "training": {}, "seed": 0,
    }
    wanted = {
        "trial": trial, "plugins": [], "seconds": 1.0, "threads": 1, "device": "cpu", "reading": {"source": "stream"},
    }
    found = measured(wanted, tmp_path)
    assert found["problem"].startswith("data: ")
    assert "nowhere" in found["problem"]
    assert "\n" not in found["problem"]
