"""Cells that have begun with other code stay as they are, others begin anew; the board names the code of each cell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from logged_studies import begun
from plugin_folders import NEGATIVES, write_loss, write_network
from refusals import fits, refused

from vsetune.config.plugins import forget_plugins
from vsetune.config.study.cells import build_trial, resolve_cells
from vsetune.records.events import NO_CONFIGURATION, AttemptRecord, AttemptStart
from vsetune.records.writer import StudyWriter
from vsetune.report.board_notes import notes
from vsetune.report.building import build
from vsetune.report.search_budgets import recorded_budget
from vsetune.search.configurations import ConfigurationSearch
from vsetune.study.changed_plugins import RefusedCell, not_begun, refused_cells, require_own_code
from vsetune.study.preparation import PreparedStudy
from vsetune.study.study_file import load_study, used_plugins
from vsetune.study.study_records import logged_search


@pytest.fixture(autouse=True)
def _own_components_only() -> Iterator[None]:
    yield
    forget_plugins()


def prepared(folder: Path, **changes: Any) -> PreparedStudy:
    plain = {
        "study": "mine", "data": {"path": "data/scenes"}, "plugins": ["half_hinge/", "bag/"],
        "networks": [{"name": "vsepp"}, {"name": "bag"}], "losses": [{"name": "half_hinge"}, {"name": "lmh"}],
        "baseline": "lmh", "training": {"epochs": 4}, "search": {"configurations": 2}, "seeds": [0, 1],
    }
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(plain | changes), encoding="utf-8")
    forget_plugins()
    study = load_study(path)
    return PreparedStudy(study, resolve_cells(study, where="study"), "data", used_plugins(study))


def attempt(study: PreparedStudy, cell: str, *, number: int = 0, seed: int = 0, **changes: Any) -> AttemptRecord:
    (found,) = (each for each in study.cells if each.name == cell)
    name = f"{cell}-c00{number}-s{seed}"
    trial = build_trial(study.spec, found, found.defaults(), trial=name, seed=seed)
    start = AttemptStart(
        "mine", name, cell, found.network_name, found.loss_name, 1, seed, "search" if seed == 0 else "confirm",
        {**found.defaults(), "number": number}, trial.to_plain(),
        environment=recorded_budget(8.0, epochs_of_a_trial=4.0),
    )
    record = AttemptRecord(name, start, "finished", ((2.0, 30.0), (4.0, 40.0 + seed)), {"epochs": 4.0})
    return replace(record, **changes)


def whole(study: PreparedStudy, cell: str) -> list[AttemptRecord]:
    return [attempt(study, cell), attempt(study, cell, number=1), attempt(study, cell, number=1, seed=1)]


@pytest.fixture
def study(tmp_path: Path) -> PreparedStudy:
    write_loss(tmp_path / "half_hinge")
    write_network(tmp_path / "bag")
    return prepared(tmp_path)


def with_another_loss(folder: Path, **changes: Any) -> PreparedStudy:
    write_loss(folder / "half_hinge", negatives=NEGATIVES.replace("-1.0", "-2.0"))
    return prepared(folder, **changes)


def test_only_cells_that_have_begun_with_other_code_stay_as_they_are(study: PreparedStudy, tmp_path: Path) -> None:
    attempts = [*whole(study, "vsepp.lmh"), attempt(study, "vsepp.half_hinge"), *whole(study, "bag.lmh")]
    assert refused_cells(study, attempts) == []
    assert not_begun(study, attempts) == ["bag.half_hinge"]
    changed = with_another_loss(tmp_path)
    (refused_cell,) = refused_cells(changed, attempts)
    assert (refused_cell.cell, refused_cell.is_whole) == ("vsepp.half_hinge", False)
    old, new = (next(each.sha256 for each in of.plugins if each.kind == "loss")[:12] for of in (study, changed))
    code = f"loss half_hinge {old} (loaded: {new})"
    assert fits(refused_cell.reason, "VSE-S007", cell="vsepp.half_hinge", code=code)
    assert not_begun(changed, attempts) == ["bag.half_hinge"]


def test_a_cell_is_whole_once_its_budget_is_used_and_every_seed_has_finished(
    study: PreparedStudy, tmp_path: Path
) -> None:
    every = whole(study, "vsepp.half_hinge")
    changed = with_another_loss(tmp_path)
    for attempts, is_whole in (
        (every, True), (every[:2], False), ([every[0], every[2]], False),
        ([*every[:2], replace(every[2], status="killed")], False),
    ):
        (refused_cell,) = refused_cells(changed, attempts)
        assert refused_cell.is_whole is is_whole
        assert fits(refused_cell.reason, "VSE-S008") is is_whole


def test_a_configuration_that_was_never_found_has_not_begun(study: PreparedStudy, tmp_path: Path) -> None:
    stands_for_none = attempt(
        study, "vsepp.half_hinge", status="failed", error=f"{NO_CONFIGURATION} for cell vsepp.half_hinge", curve=(),
    )
    changed = with_another_loss(tmp_path)
    assert refused_cells(changed, [stands_for_none]) == []
    assert not_begun(changed, [stands_for_none]) == ["vsepp.half_hinge", "bag.half_hinge", "bag.lmh"]


def test_cells_whose_target_comes_from_other_code_stay_as_well(study: PreparedStudy, tmp_path: Path) -> None:
    search = {"configurations": 2, "objective": "epochs_to_target", "target": "baseline"}
    attempts = whole(study, "vsepp.half_hinge")
    changed = with_another_loss(tmp_path, baseline="half_hinge", search=search)
    found = {each.cell: each for each in refused_cells(changed, attempts)}
    assert found.keys() == {"vsepp.half_hinge", "vsepp.lmh"}
    assert fits(found["vsepp.lmh"].reason, "VSE-S009", baseline="vsepp.half_hinge")


def test_the_refusal_names_every_cell_and_the_option_where_it_would_help() -> None:
    cells = [RefusedCell("a.b", True, "cell a.b: has run"), RefusedCell("c.d", False, "cell c.d: has begun")]
    named = {"study": "mine", "cells": "cell a.b: has run; cell c.d: has begun"}
    with refused("VSE-S010", **named, hint="; --changed-plugins goes on with the other cells"):
        require_own_code("mine", cells, cells=0)
    require_own_code("mine", cells, cells=3)
    require_own_code("mine", [], cells=0)
    with refused("VSE-S010", **named, hint=""):
        require_own_code("mine", cells, cells=2)


def test_a_cell_that_begins_anew_samples_as_if_it_had_sampled_nothing(study: PreparedStudy) -> None:
    writer = begun(StudyWriter(), study.spec)

    def search() -> ConfigurationSearch:
        return logged_search(writer, study.cells, study.spec.search)

    before = search()
    first = [before.ask("vsepp.half_hinge") for _ in range(2)]
    kept = before.ask("bag.lmh")
    assert kept is not None
    writer.restart("vsepp.half_hinge")
    writer.restart("vsepp.half_hinge")  # nothing more happens
    anew = search()
    assert anew.suggestions("vsepp.half_hinge") == []
    again = [anew.ask("vsepp.half_hinge") for _ in range(2)]
    assert [each and each.configuration for each in again] == [each and each.configuration for each in first]
    assert [each and each.number for each in again] == [2, 3], "no trial has the name of one before"
    anew.tell("vsepp.half_hinge", 2, "finished", curve=[(1.0, 30.0)])
    assert [each.number for each in anew.suggestions("bag.lmh")] == [kept.number]
    assert [each.number for each in search().suggestions("vsepp.half_hinge")] == [2, 3]


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
