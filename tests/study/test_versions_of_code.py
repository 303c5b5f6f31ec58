"""A board names the code of every cell, and compares no two versions of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from plugin_folders import write_loss, write_network

from vsetune.board.board_notes import notes
from vsetune.board.building import build
from vsetune.board.search_budgets import recorded_budget
from vsetune.config.plugins import forget_plugins
from vsetune.config.study.cells import build_trial, resolve_cells
from vsetune.records.events import AttemptStart
from vsetune.records.state import Attempt
from vsetune.study.preparation import PreparedStudy
from vsetune.study.study_file import load_study, used_plugins


@pytest.fixture(autouse=True)
def _own_components_only() -> Iterator[None]:
    yield
    forget_plugins()


def prepared(folder: Path) -> PreparedStudy:
    plain = {
        "study": "mine", "data": {"path": "data/scenes"}, "plugins": ["half_hinge/", "bag/"],
        "networks": [{"name": "vsepp"}, {"name": "bag"}], "losses": [{"name": "half_hinge"}, {"name": "lmh"}],
        "baseline": "lmh", "training": {"epochs": 4}, "search": {"configurations": 2}, "seeds": [0, 1],
    }
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(plain), encoding="utf-8")
    forget_plugins()
    study = load_study(path)
    return PreparedStudy(study, resolve_cells(study, where="study"), "data", used_plugins(study))


def attempt(study: PreparedStudy, cell: str, *, number: int = 0, seed: int = 0) -> Attempt:
    (found,) = (each for each in study.cells if each.name == cell)
    name = f"{cell}-c00{number}-s{seed}"
    trial = build_trial(study.spec, found, found.defaults(), trial=name, seed=seed)
    start = AttemptStart(
        "mine", name, cell, found.network_name, found.loss_name, 1, seed, "search" if seed == 0 else "confirm",
        {**found.defaults(), "number": number}, trial.to_plain(),
        environment=recorded_budget(8.0, epochs_of_a_trial=4.0),
    )
    return Attempt(name, start, "finished", ((2.0, 30.0), (4.0, 40.0 + seed)), {"epochs": 4.0})


def whole(study: PreparedStudy, cell: str) -> list[Attempt]:
    return [attempt(study, cell), attempt(study, cell, number=1), attempt(study, cell, number=1, seed=1)]


@pytest.fixture
def study(tmp_path: Path) -> PreparedStudy:
    write_loss(tmp_path / "half_hinge")
    write_network(tmp_path / "bag")
    return prepared(tmp_path)


def test_the_board_says_which_cell_ran_with_which_code_and_compares_no_two_versions(
    study: PreparedStudy, tmp_path: Path
) -> None:
    (old,) = (each.sha256[:12] for each in study.plugins if each.kind == "network")
    attempts = whole(study, "bag.lmh")
    board = build([*attempts, *whole(study, "bag.half_hinge")], baseline="lmh")
    assert f"Plugin code: network bag {old} in bag lmh, bag half_hinge." in notes(board)
    assert all(row.not_comparable is None for row in board.rows)
    network = (tmp_path / "bag" / "network.py").read_text(encoding="utf-8")
    write_network(tmp_path / "bag", network=network + "\n# another version\n")
    changed = prepared(tmp_path)
    (new,) = (each.sha256[:12] for each in changed.plugins if each.kind == "network")
    rows = {row.loss: row for row in build([*attempts, *whole(changed, "bag.half_hinge")], baseline="lmh").rows}
    reason = rows["half_hinge"].not_comparable
    assert reason is not None
    assert f"network bag {new} against {old}: two versions of its code" in reason
    assert rows["lmh"].not_comparable is None
