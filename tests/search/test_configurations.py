"""Configurations are asked once, reproducible, and survive the process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import optuna
import pytest
from searches_here import SearchHere

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import Drawn
from vsetune.records.state import Attempt
from vsetune.records.writer import StudyWriter
from vsetune.search import configurations
from vsetune.search.objectives import Objective
from vsetune.search.trial_history import optuna_trial

PLAIN: dict[str, Any] = {
    "study": "tiny", "data": {"path": "x"}, "networks": [{"name": "vsepp"}],
    "losses": [{"name": "lmh"}, {"name": "top_f"}, {"name": "lsh", "search": "none"}],
    "search": {"configurations": 6, "sampler": "tpe", "start": "random", "training": {"learning_rate": "default"}},
}
STUDY = parse_spec(PLAIN, StudySpec, where="test")
CELLS = resolve_cells(STUDY, where="test")
RISING = ((0.5, 20.0), (1.0, 40.0), (1.5, 30.0))


def open_search(writer: StudyWriter | None = None, **options: Any) -> SearchHere:
    return SearchHere(CELLS, STUDY.search, writer, **options)


def run(search: SearchHere, cell: str, count: int) -> list[dict[str, object]]:
    found = []
    for number in range(count):
        drawn = search.ask(cell)
        search.end(cell, drawn.number, "finished", [(1.0, float(number % 3))])
        found.append(dict(drawn.configuration))
    return found


def trials(search: SearchHere, cell: str = "vsepp.lmh") -> list[optuna.trial.FrozenTrial]:
    return search.trials(cell)


def test_a_new_process_goes_on_where_the_old_one_ended() -> None:
    writer = StudyWriter()
    first = open_search(writer)
    run(first, "vsepp.lmh", 2)
    open_one = first.ask("vsepp.lmh")
    again = open_search(writer)
    assert [each.number for each in again.suggested("vsepp.lmh")] == [0, 1, 2]
    assert again.suggested("vsepp.lmh")[2] == open_one
    assert again.suggested("vsepp.top_f") == []


def test_a_pruned_trial_has_its_whole_curve_for_the_sampler() -> None:
    search = open_search()
    search.end("vsepp.lmh", search.ask("vsepp.lmh").number, "pruned", RISING)
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
    numbers = [each.number for each in search.suggested("vsepp.lmh")]
    assert len(numbers) == 6
    assert set(numbers) == set(range(len(drawn_at_all))) - {trial.number for trial in refused}


def test_a_search_killed_among_refused_draws_goes_on_as_if_it_had_not_been() -> None:
    writer = StudyWriter()
    expected = run(open_search(refuses=large_margin), "vsepp.lmh", 4)

    def dies(cell: str, configuration: Mapping[str, Any]) -> str | None:
        if len(writer.state.draws) == 1:
            raise KeyboardInterrupt
        return large_margin(cell, configuration)

    with pytest.raises(KeyboardInterrupt):
        open_search(writer, refuses=dies).ask("vsepp.lmh")
    assert run(open_search(writer, refuses=large_margin), "vsepp.lmh", 4) == expected


@pytest.mark.parametrize("reason", ["margin is above cap", "cell vsepp.lmh: margin is above cap"])
def test_a_space_in_which_nothing_is_valid_is_one_line_that_names_the_cell_once(reason: str) -> None:
    search = open_search(refuses=lambda cell, configuration: reason)
    assert search.ask("vsepp.lmh") is None
    problem = search.search.why_none("vsepp.lmh")
    assert problem.code == "VSE-E001"
    assert [problem.fields[each] for each in ("cell", "which", "reason")] == [
        "vsepp.lmh", "100 draws in a row", "margin is above cap",
    ]


def share_of_diverging(search: SearchHere) -> float:
    """Share of the later asks in the region that diverges: learning rates above 6e-4. Best of the others: the highest.

    The good region is narrow and lies at the edge of the diverging one, as it does for learning rates.
    """
    diverging = []
    for _ in range(36):
        drawn = search.ask("vsepp.lmh")
        rate = float(drawn.configuration["training.learning_rate"])
        diverging.append(rate > 6e-4)
        if diverging[-1]:
            search.end("vsepp.lmh", drawn.number, "failed", RISING)
        else:
            search.end("vsepp.lmh", drawn.number, "finished", [(1.0, 40 + 30 * (rate / 6e-4) ** 2)])
    return sum(diverging[12:]) / len(diverging[12:])


def test_the_sampler_keeps_away_from_where_numbers_diverge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials that failed by Optuna's word it ignores, and asks there again and again."""
    def as_optuna(drawn: Drawn, ended: Attempt | None, objective: Objective) -> optuna.trial.FrozenTrial:
        trial = optuna_trial(drawn, ended, objective)
        if ended is not None and ended.status == "failed":
            trial.state = optuna.trial.TrialState.FAIL
        return trial

    learned = share_of_diverging(open_search())
    monkeypatch.setattr(configurations, "optuna_trial", as_optuna)
    ignored = share_of_diverging(open_search())
    assert learned < 0.5 < 0.9 < ignored


def test_a_failure_counts_as_pruned_before_it_reached_anything() -> None:
    search = open_search()
    search.end("vsepp.lmh", search.ask("vsepp.lmh").number, "failed", RISING)
    search.end("vsepp.lmh", search.ask("vsepp.lmh").number, "finished", [])
    assert [(trial.state.name, trial.intermediate_values) for trial in trials(search)] == [("PRUNED", {})] * 2
