"""Configurations are asked once, told once, reproducible, and survive the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from vsetune.config.cells import resolve_cells
from vsetune.config.loading import parse_spec
from vsetune.config.study import StudySpec
from vsetune.errors import StorageError
from vsetune.search.configurations import ConfigurationSearch

STUDY = parse_spec(
    {
        "study": "tiny", "data": {"path": "x"}, "networks": [{"name": "vsepp"}],
        "losses": [{"name": "lmh"}, {"name": "top_f"}, {"name": "lsh", "search": "none"}],
        "search": {"configurations": 6, "training": {"learning_rate": "default"}},
    },
    StudySpec, where="test",
)
CELLS = resolve_cells(STUDY, where="test")


def open_search(folder: Path) -> ConfigurationSearch:
    return ConfigurationSearch("tiny", CELLS, STUDY.search, storage=f"sqlite:///{folder / 'search.db'}")


def run(search: ConfigurationSearch, cell: str, count: int) -> list[dict[str, object]]:
    drawn = []
    for number in range(count):
        suggestion = search.ask(cell)
        search.tell(cell, suggestion.number, "finished", best_m_recall=float(number % 3))
        drawn.append(dict(suggestion.configuration))
    return drawn


def test_the_first_configuration_is_the_default_and_the_others_differ(tmp_path: Path) -> None:
    drawn = run(open_search(tmp_path), "vsepp.top_f", 4)
    assert drawn[0] == CELLS[1].defaults()
    assert len({str(each) for each in drawn}) == 4


def test_every_draw_is_inside_its_range_and_of_its_type(tmp_path: Path) -> None:
    for drawn in run(open_search(tmp_path), "vsepp.top_f", 8):
        assert isinstance(drawn["loss.decay_steps"], int)
        assert 200 <= drawn["loss.decay_steps"] <= 20_000
        assert isinstance(drawn["loss.margin"], float)
        assert 0.05 <= drawn["loss.margin"] <= 0.4


def test_the_same_seed_and_history_give_the_same_configurations(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert run(open_search(tmp_path / "a"), "vsepp.lmh", 5) == run(open_search(tmp_path / "b"), "vsepp.lmh", 5)


def test_a_new_process_goes_on_where_the_old_one_ended(tmp_path: Path) -> None:
    first = open_search(tmp_path)
    run(first, "vsepp.lmh", 2)
    open_one = first.ask("vsepp.lmh")
    again = open_search(tmp_path)
    assert [each.number for each in again.suggestions("vsepp.lmh")] == [0, 1, 2]
    assert [each.is_open for each in again.suggestions("vsepp.lmh")] == [False, False, True]
    assert again.suggestions("vsepp.lmh")[2].configuration == open_one.configuration
    assert again.suggestions("vsepp.top_f") == []


def test_telling_twice_keeps_the_first_outcome(tmp_path: Path) -> None:
    search = open_search(tmp_path)
    number = search.ask("vsepp.lmh").number
    search.report("vsepp.lmh", number, step=10, m_recall=5.0)
    search.report("vsepp.lmh", number, step=10, m_recall=5.0)
    search.tell("vsepp.lmh", number, "pruned", best_m_recall=5.0)
    search.tell("vsepp.lmh", number, "finished", best_m_recall=50.0)
    assert not search.suggestions("vsepp.lmh")[0].is_open


def test_a_cell_without_anything_to_search_gets_its_one_configuration(tmp_path: Path) -> None:
    assert open_search(tmp_path).ask("vsepp.top_f").configuration
    only_rate = open_search(tmp_path).ask("vsepp.lsh").configuration
    assert set(only_rate) == {"training.learning_rate"}


def test_a_storage_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"search\.storage: cannot open"):
        ConfigurationSearch("tiny", CELLS, STUDY.search, storage=f"sqlite:///{tmp_path}/no/such/folder/x.db")
