"""What a draw is: the sampler's random start, its seed, its ranges, and which trials it hears of."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial
from tiny_studies import tiny_cell

from vsetune.config.study.cells import Cell
from vsetune.config.study.study_spec import SearchSpec, StudySpec
from vsetune.search.drawing import CellDrawing
from vsetune.search.sampling.sampler import distributions_of, even_point
from vsetune.search.trial_history import REFUSED, TrialHistory


def study_of(loss: str = "top_f", **search: Any) -> tuple[StudySpec, Cell]:
    return tiny_cell(
        loss, **{"training": {"learning_rate": "default"}, "sampler": "tpe", "start": "random"} | search
    )


def history_of(cell: Cell, count: int, *, refused: int = 0) -> list[FrozenTrial]:
    """So many finished trials after so many refused ones, drawn without any sampler of ours."""
    random = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=5))
    trials = []
    for number in range(refused + count):
        params = random.ask(fixed_distributions=distributions_of(cell)).params
        is_refused = number < refused
        trials.append(create_trial(
            params=params, distributions=distributions_of(cell), value=None if is_refused else float(number % 3),
            state=TrialState.PRUNED if is_refused else TrialState.COMPLETE,
            user_attrs={REFUSED: "too large"} if is_refused else {},
        ))
    return trials


def asked(sampler: optuna.samplers.BaseSampler, cell: Cell, history: Sequence[FrozenTrial]) -> dict[str, Any]:
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.add_trials(history)
    return dict(study.ask(fixed_distributions=distributions_of(cell)).params)


def draw(spec: SearchSpec, cell: Cell, history: Sequence[FrozenTrial]) -> dict[str, Any]:
    drawn = CellDrawing(spec, cell).next(TrialHistory(history, applying=cell.applying))
    assert drawn is not None
    return drawn[0]


def seed_of(seed: int, cell: Cell, count: int) -> int:
    return int.from_bytes(sha256(f"{seed}/{cell.name}/{count}".encode()).digest()[:4], "big")


def at_random(study: StudySpec, cell: Cell, history: Sequence[FrozenTrial]) -> dict[str, Any]:
    return asked(optuna.samplers.RandomSampler(seed=seed_of(study.search.seed, cell, len(history))), cell, history)


@pytest.mark.parametrize(("configurations", "random_start"), [
    (1, 2), (6, 2), (8, 2), (9, 3), (11, 3), (12, 4), (29, 9), (30, 10), (33, 10), (90, 10),
])
def test_a_third_of_the_configurations_is_random_at_least_two_at_most_ten(configurations, random_start) -> None:
    study, cell = study_of(configurations=configurations)
    before, after = history_of(cell, random_start - 1), history_of(cell, random_start)
    assert draw(study.search, cell, before) == at_random(study, cell, before)
    assert draw(study.search, cell, after) != at_random(study, cell, after)


@pytest.mark.parametrize("seed", range(4))
def test_a_draw_is_what_optuna_asks_after_a_copy_of_finished_pruned_and_running_trials(seed: int) -> None:
    study, cell = study_of(configurations=6, seed=seed)
    history = history_of(cell, 24, refused=2)
    for number, trial in enumerate(history):  # as a database with a trial that is not whole numbers them
        trial.number = number + (number > 5)
    for trial in history[4::3]:
        trial.state, trial.values = TrialState.PRUNED, None
        if trial.number % 2:
            trial.state, trial.datetime_complete = TrialState.RUNNING, None
        trial.intermediate_values = {1000: float(trial.number % 7), 2000: float(trial.number % 5)}
    before = copy.deepcopy(history)
    tpe = optuna.samplers.TPESampler(
        seed=seed_of(seed, cell, len(history)), n_startup_trials=2 + 2, constant_liar=True
    )
    assert draw(study.search, cell, history) == asked(tpe, cell, history)
    assert history == before


@pytest.mark.parametrize("seed", range(3))
def test_a_draw_keeps_away_from_where_trials_are_running(seed: int) -> None:
    """It is where the best of the ended trials is, until trials run there."""
    study, cell = tiny_cell("lmh", {"margin": {"low": 0.05, "high": 0.4}}, configurations=6, sampler="tpe", seed=seed)
    ended = [run_at(cell, 0.05 + 0.35 * place / 11, value=-abs(place - 7.0)) for place in range(12)]
    first = draw(study.search, cell, numbered([*ended, *[run_at(cell, 0.05)] * 8]))["loss.margin"]
    second = draw(study.search, cell, numbered([*ended, *[run_at(cell, first)] * 8]))["loss.margin"]
    assert first == pytest.approx(0.05 + 0.35 * 7 / 11, abs=0.04)
    assert abs(second - first) > 0.01


def run_at(cell: Cell, margin: float, *, value: float | None = None) -> FrozenTrial:
    """A trial that ended with this value; without one, a running trial."""
    return create_trial(
        params={"loss.margin": margin}, distributions=distributions_of(cell), value=value,
        state=TrialState.RUNNING if value is None else TrialState.COMPLETE,
    )


def numbered(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Copies of the trials with the numbers of their places."""
    copies = [copy.copy(trial) for trial in trials]
    for number, trial in enumerate(copies):
        trial.number = number
    return copies


def test_refused_draws_do_not_shorten_the_random_start() -> None:
    study, cell = study_of(configurations=9)
    before, after = history_of(cell, 2, refused=3), history_of(cell, 3, refused=3)
    assert draw(study.search, cell, before) == at_random(study, cell, before)
    assert draw(study.search, cell, after) != at_random(study, cell, after)


def test_a_search_starts_evenly_and_refused_draws_do_not_shorten_that() -> None:
    study, cell = study_of(configurations=9, start="sobol")
    seed_name = f"{study.search.seed}/{cell.network_name}/1"
    for history in (history_of(cell, 2), history_of(cell, 2, refused=3)):
        even = even_point(distributions_of(cell), len(history), seed_name=seed_name)
        assert draw(study.search, cell, history) == even
    assert draw(study.search, cell, history_of(cell, 3)) != even_point(distributions_of(cell), 3, seed_name=seed_name)


def test_a_gaussian_process_hears_of_stopped_and_failed_trials_and_gives_the_same_again() -> None:
    study, cell = study_of("lseh", configurations=6, sampler="gp")
    history = history_of(cell, 9)
    for number, trial in enumerate(history):
        trial.number = number
    other = copy.deepcopy(history)
    for number, trial in enumerate(other[2:6]):  # what was best is now the worst of all, stopped or failed
        trial.state, trial.values = TrialState.PRUNED, None
        trial.intermediate_values = {1000: -float(number)} if number % 2 else {}
    before = copy.deepcopy(other)
    seed = seed_of(study.search.seed, cell, 9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        noisy, exact = (
            optuna.samplers.GPSampler(seed=seed, n_startup_trials=0, deterministic_objective=is_exact)
            for is_exact in (False, True)
        )
    assert draw(study.search, cell, history) == asked(noisy, cell, history) != asked(exact, cell, history)
    assert draw(study.search, cell, history) == draw(study.search, cell, history)
    assert draw(study.search, cell, history) != draw(study.search, cell, other)
    assert other == before


def test_a_failed_trial_counts_as_the_median_of_the_others_for_a_gaussian_process() -> None:
    study, cell = tiny_cell("lmh", {"margin": {"low": 0.05, "high": 0.4}}, configurations=6, sampler="gp")
    ended = [run_at(cell, 0.05 + 0.35 * place / 11, value=60 - 3 * abs(place - 5)) for place in range(12)]
    values = sorted(trial.value for trial in [*ended[:5], *ended[6:]])

    def drawn(best: FrozenTrial) -> dict[str, Any]:
        return draw(study.search, cell, numbered([*ended[:5], best, *ended[6:]]))

    failed = create_trial(
        params=ended[5].params, distributions=distributions_of(cell), state=TrialState.PRUNED, intermediate_values={},
    )
    as_median, as_worst = (run_at(cell, failed.params["loss.margin"], value=value) for value in (values[5], values[0]))
    assert drawn(failed) == drawn(as_median) != drawn(as_worst)


def test_a_random_search_stays_random() -> None:
    study, cell = study_of(configurations=9, sampler="random")
    history = history_of(cell, 12)
    assert draw(study.search, cell, history) == at_random(study, cell, history)


def test_seed_cell_and_number_make_the_draw() -> None:
    study, cell = study_of(sampler="random")
    other_seed, _ = study_of(sampler="random", seed=1)
    _, other_cell = study_of("lmh", sampler="random")
    history = history_of(cell, 1)
    rate = draw(study.search, cell, history)["training.learning_rate"]
    assert rate != draw(other_seed.search, cell, history)["training.learning_rate"]
    assert rate != draw(study.search, cell, history_of(cell, 2))["training.learning_rate"]
    assert rate != draw(study.search, other_cell, history_of(other_cell, 1))["training.learning_rate"]


def test_the_first_draw_is_the_default_only_where_the_study_says_so() -> None:
    study, cell = study_of()
    assert draw(study.search, cell, []) == cell.defaults()
    study, cell = study_of(include_defaults=False)
    assert draw(study.search, cell, []) == at_random(study, cell, [])
    assert draw(study.search, cell, []) != cell.defaults()


def test_a_cell_without_domains_has_one_empty_configuration() -> None:
    study, cell = study_of()
    assert draw(study.search, replace(cell, domains={}), []) == {}


def test_ranges_become_distributions_of_their_type_and_scale() -> None:
    _, cell = study_of()
    found = distributions_of(cell)
    assert found.keys() == cell.domains.keys()
    for name, domain in cell.domains.items():
        made = found[name]
        if isinstance(made, optuna.distributions.CategoricalDistribution):
            assert list(made.choices) == list(domain.choices)
            continue
        assert isinstance(made, optuna.distributions.IntDistribution) == domain.integer
        assert (made.low, made.high, made.log) == (domain.low, domain.high, domain.log)
    assert {type(made).__name__ for made in found.values()} >= {"IntDistribution", "FloatDistribution"}
    assert {made.log for made in found.values()} == {True, False}
