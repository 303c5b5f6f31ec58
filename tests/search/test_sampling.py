"""Every way of drawing: reproducible, inside the space, resumable, said why; and better than chance where it learns."""

from __future__ import annotations

import logging
import math
from typing import Any, get_args

import numpy as np
import pytest
from optuna.trial import TrialState, create_trial
from refusals import refused
from threadpoolctl import threadpool_info
from tiny_studies import tiny_cell

from vsetune.config.messages import UNKNOWN_NAME
from vsetune.config.study.cells import Cell
from vsetune.config.study.study_spec import SearchSpec, StudySpec
from vsetune.search.configurations import ConfigurationSearch, Lesson, Sampled, Suggestion
from vsetune.search.drawing import CellDrawing, sampler_named
from vsetune.search.objectives import Objective
from vsetune.search.sampling import optuna_samplers
from vsetune.search.sampling.optuna_samplers import _finished_for_good, asked
from vsetune.search.sampling.sampler import distributions_of
from vsetune.search.trial_history import NOTES, TrialHistory

SAMPLERS = get_args(SearchSpec.model_fields["sampler"].annotation)
DECAYS = {"decay": {"choices": ["hyperbolic", "linear"]}, "sharpness": "default", "margin": "default"}


def study_of(loss: str = "lseh", space: Any = "default", **search: Any) -> tuple[StudySpec, Cell]:
    return tiny_cell(loss, space, **{"training": {"learning_rate": "default"}, "configurations": 6} | search)


def searched(study: StudySpec, cell: Cell, count: int, *, kept: list[Sampled] | None = None) -> list[Suggestion]:
    """So many configurations, each told before the next: high where the margin is near 0.3. kept: what earlier
    processes sampled, and then what this one does."""
    kept = [] if kept is None else kept
    search = ConfigurationSearch([cell], study.search, sampled=kept, keep=kept.append)

    def tell(suggestion: Suggestion) -> None:
        best = 60 - 100 * abs(float(suggestion.configuration["loss.margin"]) - 0.3)
        search.tell(cell.name, suggestion.number, "finished", curve=[(1.0, best - 5), (2.0, best)])

    for earlier in search.suggestions(cell.name):
        tell(earlier)
    found = []
    for _ in range(count):
        suggestion = search.ask(cell.name)
        assert suggestion is not None
        tell(suggestion)
        found.append(suggestion)
    return found


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_settings_without_effect_are_not_drawn_and_a_resumed_search_goes_on_as_an_undisturbed_one(
    sampler: str,
) -> None:
    study, cell = study_of("top_f", DECAYS, sampler=sampler)
    undisturbed = searched(study, cell, 7 if sampler == "gp" else 12)
    if sampler in ("tpe", "cma-es", "nsga-ii"):
        kept: list[Sampled] = []
        assert [*searched(study, cell, 9, kept=kept), *searched(study, cell, 3, kept=kept)] == undisturbed
    drawn = [dict(each.configuration) for each in undisturbed]
    for each in drawn:
        assert ("loss.sharpness" in each) == (each["loss.decay"] == "hyperbolic")
        assert {"loss.margin", "loss.decay", "training.learning_rate"} <= each.keys()
        assert 0.05 <= each["loss.margin"] <= 0.4
        assert 1e-4 <= each["training.learning_rate"] <= 3e-3
    assert {each["loss.decay"] for each in drawn} == {"hyperbolic", "linear"}


@pytest.mark.parametrize(("sampler", "start", "later"), [
    ("gp", "start of gp, sobol: even point 1", "gp: model of 3 trials"),
    ("tpe", "start of tpe, sobol: even point 1", "tpe: model of 3 trials"),
    ("cma-es", "start of cma-es, sobol: even point 1", "cma-es: generation 1, after 3 trials"),
    ("nsga-ii", "start of nsga-ii, sobol: even point 1", "nsga-ii: generation 1 of 2 parents, after 3 trials"),
    ("sobol", "sobol: even point 1", "sobol: even point 3"), ("random", "random: at random", "random: at random"),
    ("grid", "grid: point 1 of 8, of which 5 whole trainings try a part",
     "grid: point 3 of 8, of which 5 whole trainings try a part"),
])
def test_every_draw_says_which_sampler_made_it_and_from_what(sampler: str, start: str, later: str) -> None:
    study, cell = study_of(sampler=sampler)
    found = [each.drawn_by for each in searched(study, cell, 4)]
    assert found[:2] == ["the papers' defaults", start]
    assert found[3] == later


@pytest.mark.parametrize("sampler", ["gp", "tpe"])
def test_trials_that_never_reach_a_target_tell_samplers_where_to_look(sampler: str) -> None:
    """Trials rise evenly to 60 at a margin of 0.335 and lose 1.2 points per 0.01; only those within 0.025 reach 57. The
    first that do not are told as censored; one diverges. Told as equally bad they would lead nowhere."""
    study, cell = study_of("lmh", {"margin": {"low": 0.05, "high": 0.4}}, sampler=sampler, training={})
    search, objective = ConfigurationSearch([cell], study.search), Objective(
        "epochs_to_target", 10.0, 57.0
    )
    misses: list[float] = []
    for number in range(26 if sampler == "tpe" else 11):
        suggestion = search.ask(cell.name)
        assert suggestion is not None
        away = abs(float(suggestion.configuration["loss.margin"]) - 0.335)
        misses.append(away)
        if number == 2:
            search.tell(cell.name, suggestion.number, "failed", curve=[])
            continue
        curve = [(float(epoch), (60 - 120 * away) * epoch / 10) for epoch in range(1, 11)]
        told = objective.told(curve, 0.0)
        search.tell(cell.name, suggestion.number, "finished", curve=told)
    assert min(misses[:4]) > 0.025, "the start has to miss for this to be a test"
    assert sum(away < 0.025 for away in misses[-5:]) >= 3


def test_what_made_a_draw_is_kept_with_it() -> None:
    study, cell = study_of("lmh")
    kept: list[Sampled] = []
    (drawn,) = searched(study, cell, 1, kept=kept)
    assert ConfigurationSearch([cell], study.search, sampled=kept).suggestions(cell.name) == [drawn]


def valley(configuration: dict[str, Any]) -> float:
    """Highest along a narrow diagonal of margin and temperature, at one rate; no setting can be found by itself."""
    margin = (configuration["loss.margin"] - 0.05) / 0.35
    temperature = math.log(configuration["loss.semantic_temperature"] / 0.005) / math.log(20)
    rate = math.log(configuration["training.learning_rate"] / 1e-4) / math.log(30)
    return 70 - 60 * (margin + temperature - 1.1) ** 2 - 10 * (margin - temperature - 0.3) ** 2 - 20 * (rate - 0.6) ** 2


@pytest.mark.parametrize("sampler", ["cma-es", "nsga-ii"])
def test_samplers_that_breed_find_more_than_random_ones(sampler: str) -> None:
    def best(name: str, seed: int) -> float:
        study, cell = study_of(sampler=name, seed=seed, configurations=60, include_defaults=False)
        search = ConfigurationSearch([cell], study.search)
        reached = []
        for _ in range(60):
            suggestion = search.ask(cell.name)
            reached.append(valley(dict(suggestion.configuration)))
            search.tell(cell.name, suggestion.number, "finished", curve=[(1.0, reached[-1])])
        return float(np.mean(reached[40:]))

    assert all(best(sampler, seed) > best("random", seed) + 5 for seed in range(3))


@pytest.mark.parametrize("sampler", ["cma-es", "nsga-ii"])
def test_a_generation_learns_from_the_trials_that_had_ended_when_it_began(sampler: str) -> None:
    """Those that end later change nothing, whether the process that draws has seen it begin or not."""
    study, cell = study_of(sampler=sampler, configurations=60, start="random", include_defaults=False)
    search = ConfigurationSearch([cell], study.search)
    waiting: list[Suggestion] = []
    for number in range(60):
        waiting.append(search.ask(cell.name))
        if number % 5 == 4:  # they end in another order than they began, some of them much later
            for told in (waiting.pop(3), waiting.pop(0), waiting.pop(0)):
                value = valley(dict(told.configuration))
                search.tell(cell.name, told.number, "finished", curve=[(1.0, value)])
    history = search._histories[cell.name]
    assert sum("told" in trial.user_attrs.get(NOTES, {}) for trial in history) >= 2
    fresh = CellDrawing(study.search, cell).next(TrialHistory(history))
    assert fresh == search._drawings[cell.name].next(history)


def grid_of(**search: Any) -> tuple[list[tuple[Any, ...]], list[str]]:
    study, cell = study_of("top_f", DECAYS, sampler="grid", include_defaults=False, **search)
    drawing, history, found, why = CellDrawing(study.search, cell), TrialHistory(), [], []
    for number in range(2 * study.search.configurations):
        drawn = drawing.next(history)
        assert drawn is not None
        found.append(tuple(sorted(drawn.configuration.items())))
        why.append(drawn.why)
        trial = create_trial(
            state=TrialState.RUNNING, params=drawn.configuration,
            distributions={name: each for name, each in distributions_of(cell).items() if name in drawn.configuration},
        )
        trial.number = number
        history.add(trial)
    return found, why


def test_a_grid_has_every_combination_once_then_those_of_a_finer_one() -> None:
    found, why = grid_of(configurations=24)
    assert len(set(found)) == 48
    coarse = [dict(each) for each, told in zip(found, why, strict=True) if "finer" not in told]
    assert len(coarse) == 3 * 2 * 2 + 3 * 2, "three margins, two rates; two of sharpness where it has an effect"
    assert {each["loss.decay"] for each in coarse} == {"hyperbolic", "linear"}
    for name, low, high in (("loss.margin", 0.05, 0.4), ("training.learning_rate", 1e-4, 3e-3)):
        values = {each[name] for each in coarse}
        assert {low, high} <= values
    assert grid_of(configurations=24)[0] == found


@pytest.mark.parametrize(("configurations", "tried"), [(6, "5 whole trainings"), (2, "1 whole training")])
def test_a_grid_that_the_budget_does_not_cover_is_told(caplog: Any, configurations: int, tried: str) -> None:
    study, cell = study_of("top_f", DECAYS, sampler="grid", configurations=configurations)
    search = ConfigurationSearch([cell], study.search)
    with caplog.at_level(logging.WARNING):
        search.ask(cell.name)
    assert [record.getMessage() for record in caplog.records] == [
        f"search: cell vsepp.top_f: the coarsest grid has 16 points and the budget lets {tried} try them, so parts "
        "of the space are not seen; raise search.configurations to 17, search less, or use another sampler"
    ]


def test_points_of_papers_come_after_the_defaults_and_before_the_start() -> None:
    study, cell = study_of("lseh", points="lseh_table2", sampler="tpe")
    found = searched(study, cell, 9)
    rates = [each.configuration["training.learning_rate"] for each in found[:4]]
    assert rates == [2e-4, 2e-3, 3e-3, 8e-4]
    assert [each.drawn_by for each in found[:4]] == [
        "the papers' defaults", "points: LSEH Table 2: VSE++ LSEH Flickr30K",
        "points: LSEH Table 2: VSE++ LSEH MS-COCO", "points: LSEH Table 2: VSE++ LSEH IAPR TC-12",
    ]
    assert all(each.configuration["loss.margin"] == 0.185 for each in found[:4])
    assert found[4].drawn_by == "start of tpe, sobol: even point 4"
    assert found[5].drawn_by.startswith("tpe: model of 5")


def test_points_of_one_data_set_are_moved_into_narrower_ranges_and_that_is_told() -> None:
    study, cell = study_of("lmh", {"margin": {"choices": [0.1, 0.15, 0.2]}}, points=["lseh_table2.coco"],
                           training={"learning_rate": {"low": 1e-4, "high": 1e-3, "log": True}})
    found = searched(study, cell, 3)
    assert dict(found[1].configuration) == {"loss.margin": 0.15, "training.learning_rate": 1e-3}
    assert found[1].drawn_by == (
        "points: LSEH Table 2: VSE++ LMH2 MS-COCO (loss.margin, training.learning_rate moved into the range)"
    )
    assert found[2].drawn_by.startswith("start of gp"), "the other row is equal to the defaults"


def test_points_that_nobody_printed_are_one_line_with_what_there_is() -> None:
    with refused(UNKNOWN_NAME, key="search.points[0]", name="lseh_tabel2", hint="did you mean lseh_table2? "):
        study_of(points=["lseh_tabel2"])


def test_lessons_of_another_study_are_learnt_from_but_are_no_configurations_of_this_one() -> None:
    study, cell = study_of("lmh", sampler="tpe")
    lesson = Lesson("older/a-1", {"loss.margin": 0.25, "training.learning_rate": 5e-4}, 55.0)
    kept: list[Sampled] = []
    for _ in range(2):
        search = ConfigurationSearch([cell], study.search, sampled=kept, keep=kept.append)
        search.teach(cell.name, [lesson], [{"loss.margin": 0.11}])
    assert search.suggestions(cell.name) == []
    first, second = search.ask(cell.name), search.ask(cell.name)
    assert (first.number, first.configuration) == (1, cell.defaults())
    assert second.configuration["loss.margin"] == 0.11
    assert second.drawn_by == "tpe: model of 1 trial, 1 running, with settings of another study"
    (known,) = [trial for trial in search._histories[cell.name] if trial.values]
    assert (known.value, known.params) == (55.0, lesson.configuration)


def test_a_failure_counts_as_the_median_of_what_is_known_also_where_only_other_studies_know_any() -> None:
    study, cell = study_of("lmh", sampler="gp")
    search = ConfigurationSearch([cell], study.search)
    search.teach(cell.name, [
        Lesson(f"older/a-{number}", {"loss.margin": 0.1 * number, "training.learning_rate": 5e-4}, 50.0 + number)
        for number in (1, 2)
    ])
    search.tell(cell.name, search.ask(cell.name).number, "failed", curve=[])
    told = [(trial.state, trial.value) for trial in _finished_for_good(search._histories[cell.name])]
    assert told == [(TrialState.COMPLETE, value) for value in (51.0, 52.0, 51.5)]


def test_a_gaussian_process_computes_with_one_thread_and_leaves_the_process_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others would wait for cores on which trials train."""
    asking: list[int] = []
    monkeypatch.setattr(optuna_samplers, "asked", lambda *given: asking.append(most_threads()) or asked(*given))
    before = most_threads()
    study, cell = study_of("lmh", sampler="gp")
    searched(study, cell, 7)
    assert asking
    assert set(asking) == {1}
    assert most_threads() == before


def most_threads() -> int:
    """Of the libraries that compute in this process."""
    return max(int(library["num_threads"]) for library in threadpool_info())


def test_a_study_knows_which_samplers_learn() -> None:
    for name in SAMPLERS:
        assert sampler_named(name).learns == SearchSpec(sampler=name).learns  # type: ignore[arg-type]
