"""Configurations are asked once, told once, reproducible, and survive the process."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import optuna
import pytest
from refusals import refused

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.search.configurations import ConfigurationSearch, Sampled

PLAIN: dict[str, Any] = {
    "study": "tiny", "data": {"path": "x"}, "networks": [{"name": "vsepp"}],
    "losses": [{"name": "lmh"}, {"name": "top_f"}, {"name": "lsh", "search": "none"}],
    "search": {"configurations": 6, "sampler": "tpe", "start": "random", "training": {"learning_rate": "default"}},
}
STUDY = parse_spec(PLAIN, StudySpec, where="test")
CELLS = resolve_cells(STUDY, where="test")
RISING = ((0.5, 20.0), (1.0, 40.0), (1.5, 30.0))


def open_search(kept: list[Sampled] | None = None, **options: Any) -> ConfigurationSearch:
    """kept: what earlier processes sampled, and then what this one does."""
    kept = [] if kept is None else kept
    return ConfigurationSearch(CELLS, STUDY.search, sampled=kept, keep=kept.append, **options)


def run(search: ConfigurationSearch, cell: str, count: int) -> list[dict[str, object]]:
    drawn = []
    for number in range(count):
        suggestion = search.ask(cell)
        search.tell(cell, suggestion.number, "finished", curve=[(1.0, float(number % 3))])
        drawn.append(dict(suggestion.configuration))
    return drawn


def trials(search: ConfigurationSearch, cell: str = "vsepp.lmh") -> list[optuna.trial.FrozenTrial]:
    return list(search._histories[cell])


def test_a_new_process_goes_on_where_the_old_one_ended() -> None:
    kept: list[Sampled] = []
    first = open_search(kept)
    run(first, "vsepp.lmh", 2)
    open_one = first.ask("vsepp.lmh")
    again = open_search(kept)
    assert [each.number for each in again.suggestions("vsepp.lmh")] == [0, 1, 2]
    assert [each.is_open for each in again.suggestions("vsepp.lmh")] == [True] * 3, "outcomes are told to each process"
    assert again.suggestions("vsepp.lmh")[2] == open_one
    assert again.suggestions("vsepp.top_f") == []


def test_telling_twice_keeps_the_first_outcome() -> None:
    search = open_search()
    number = search.ask("vsepp.lmh").number
    search.tell("vsepp.lmh", number, "pruned", curve=RISING)
    search.tell("vsepp.lmh", number, "finished", curve=[(9.0, 50.0)])
    assert trials(search)[0].state.name == "PRUNED"
    assert max(trials(search)[0].intermediate_values) == 1500


def test_a_cell_without_anything_to_search_gets_its_one_configuration() -> None:
    only_rate = open_search().ask("vsepp.lsh").configuration
    assert set(only_rate) == {"training.learning_rate"}


def large_margin(cell: str, configuration: Mapping[str, Any]) -> str | None:
    return "margin is too large" if configuration["loss.margin"] > 0.12 else None


def test_a_refused_draw_is_recorded_and_replaced() -> None:
    search = open_search(refuses=large_margin)
    drawn = run(search, "vsepp.lmh", 6)
    assert all(each["loss.margin"] <= 0.12 for each in drawn)  # type: ignore[operator]
    drawn_at_all = trials(search)
    refused = [trial for trial in drawn_at_all if "refused" in trial.user_attrs]
    assert refused[0].params == CELLS[0].defaults()
    assert {trial.user_attrs["refused"] for trial in refused} == {"margin is too large"}
    numbers = [each.number for each in search.suggestions("vsepp.lmh")]
    assert len(numbers) == 6
    assert set(numbers) == set(range(len(drawn_at_all))) - {trial.number for trial in refused}


def test_a_search_killed_among_refused_draws_goes_on_as_if_it_had_not_been() -> None:
    kept: list[Sampled] = []
    expected = run(open_search(refuses=large_margin), "vsepp.lmh", 4)

    def dies(cell: str, configuration: Mapping[str, Any]) -> str | None:
        if len(kept) == 1:
            raise KeyboardInterrupt
        return large_margin(cell, configuration)

    with pytest.raises(KeyboardInterrupt):
        open_search(kept, refuses=dies).ask("vsepp.lmh")
    assert run(open_search(kept, refuses=large_margin), "vsepp.lmh", 4) == expected


@pytest.mark.parametrize("reason", ["margin is above cap", "cell vsepp.lmh: margin is above cap"])
def test_a_space_in_which_nothing_is_valid_is_one_line_that_names_the_cell_once(reason: str) -> None:
    search = open_search(refuses=lambda cell, configuration: reason)
    with refused("VSE-E001", cell="vsepp.lmh", which="100 draws in a row", reason="margin is above cap"):
        search.ask("vsepp.lmh")


def share_of_diverging(tell: Callable[[ConfigurationSearch, int], None]) -> float:
    """Share of the later asks in the region that diverges: learning rates above 6e-4. Best of the others: the highest.

    The good region is narrow and lies at the edge of the diverging one, as it does for learning rates.
    """
    search = open_search()
    diverging = []
    for _ in range(36):
        suggestion = search.ask("vsepp.lmh")
        rate = float(suggestion.configuration["training.learning_rate"])
        diverging.append(rate > 6e-4)
        if diverging[-1]:
            tell(search, suggestion.number)
        else:
            search.tell("vsepp.lmh", suggestion.number, "finished", curve=[(1.0, 40 + 30 * (rate / 6e-4) ** 2)])
    return sum(diverging[12:]) / len(diverging[12:])


def test_the_sampler_keeps_away_from_where_numbers_diverge() -> None:
    """Told as FAIL, as before, Optuna ignores them and asks there again and again."""
    def as_failure(search: ConfigurationSearch, number: int) -> None:
        history = search._histories["vsepp.lmh"]
        failed = copy.copy(history[number])
        failed.state = optuna.trial.TrialState.FAIL
        history.update(failed)

    def as_ours(search: ConfigurationSearch, number: int) -> None:
        search.tell("vsepp.lmh", number, "failed", curve=RISING)

    ignored, learned = share_of_diverging(as_failure), share_of_diverging(as_ours)
    assert learned < 0.5 < 0.9 < ignored


def test_a_failure_counts_as_pruned_before_it_reached_anything() -> None:
    search = open_search()
    search.tell("vsepp.lmh", search.ask("vsepp.lmh").number, "failed", curve=RISING)
    search.tell("vsepp.lmh", search.ask("vsepp.lmh").number, "finished", curve=[])
    assert [(trial.state.name, trial.intermediate_values) for trial in trials(search)] == [("PRUNED", {})] * 2
