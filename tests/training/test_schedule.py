from typing import Any

import pytest
from refusals import refused

from vsetune.config.study.training import TrainingSpec
from vsetune.errors import ConfigError
from vsetune.training.schedule import (
    drop_factor,
    next_validation,
    phase_at,
    rate_factor,
    require_room_for_warmup,
    total_steps,
)


@pytest.mark.parametrize(
    ("mode", "epoch", "expected"),
    [
        ("repeat", 0.0, 1.0), ("repeat", 1.999, 1.0), ("repeat", 2.0, 0.1), ("repeat", 3.9, 0.1), ("repeat", 4.0, 0.01),
        ("once", 1.999, 1.0), ("once", 2.0, 0.1), ("once", 4.0, 0.1), ("once", 100.0, 0.1),
    ],
)
def test_the_rate_drops_at_every_step_or_once(mode: str, epoch: float, expected: float) -> None:
    training = TrainingSpec(learning_rate_step=2, learning_rate_drop=0.1, learning_rate_mode=mode)
    assert drop_factor(training, epoch) == pytest.approx(expected)


def test_a_drop_at_a_fraction_of_an_epoch_is_not_missed_by_rounding() -> None:
    training = TrainingSpec(learning_rate_step=0.2, learning_rate_drop=0.5)
    assert 0.6 / 0.2 < 3  # what floating point makes of it
    assert drop_factor(training, 0.6) == 0.125


@pytest.mark.parametrize(
    ("epochs", "per_epoch", "expected"), [(2.0, 6, 12), (0.5, 7, 4), (0.1, 30, 3), (1.1, 10, 11), (0.001, 10, 1)]
)
def test_a_budget_in_epochs_is_rounded_up_to_whole_steps(epochs: float, per_epoch: int, expected: int) -> None:
    assert total_steps(TrainingSpec(epochs=epochs), per_epoch) == expected


def _validations(training: TrainingSpec, per_epoch: int) -> list[int]:
    steps = [0]
    while steps[-1] < total_steps(training, per_epoch):
        steps.append(next_validation(training, step=steps[-1], steps_per_epoch=per_epoch))
    return steps[1:]


def test_validations_come_every_v_steps_at_ends_of_epochs_and_at_the_end_of_the_budget() -> None:
    assert _validations(TrainingSpec(epochs=2.5, validate_every_steps=4), 6) == [4, 6, 8, 12, 15]
    assert _validations(TrainingSpec(epochs=2.5), 6) == [6, 12, 15]


def test_a_phase_begins_at_the_end_of_the_one_before() -> None:
    training = TrainingSpec(epochs=4, phases=[{"epochs": 0.6}, {"epochs": 1.4}, {}])
    assert [phase_at(training, epoch) for epoch in (0, 0.5, 0.6, 1.9, 2.0, 3.99)] == [
        (0, 0.0), (0, 0.0), (1, 0.6), (1, 0.6), (2, 2.0), (2, 2.0),
    ]
    assert phase_at(TrainingSpec(epochs=4), 3.5) == (0, 0.0)


DROPS, HALF = {"learning_rate_step": 1, "learning_rate_drop": 0.5}, {"warmup_fraction": 0.5}
PHASES = [{"epochs": 2, "learning_rate_factor": 0.5}, {}]  # 4 steps, then 2


@pytest.mark.parametrize(("steps", "training", "expected"), [
    # N = 10 steps, w = 2: (i + 1) / 2, then (10 - i) / 8
    *((5, {"epochs": 2, "linear_schedule": warmup}, [0.5, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125])
      for warmup in ({"warmup_fraction": 0.2}, {"warmup_steps": 2})),
    (4, {"epochs": 1, "linear_schedule": {"warmup_steps": 0}}, [1, 0.75, 0.5, 0.25]),
    # w = 2.5 of N = 5: 1 / 2.5, 2 / 2.5, least of 1 and 3 / 2.5, then 2 / 2.5 and 1 / 2.5
    (5, {"epochs": 1, "linear_schedule": HALF}, [0.4, 0.8, 1, 0.8, 0.4]),
    # anew with every phase, or over all of them
    (2, {"epochs": 3, "phases": PHASES, "linear_schedule": HALF}, [0.5, 1, 1, 0.5, 1, 1]),
    (2, {"epochs": 3, "phases": PHASES, "linear_schedule": HALF | {"over": "training"}},
     [1 / 3, 2 / 3, 1, 1, 2 / 3, 1 / 3]),
    (2, {"epochs": 4, "phases": [{"epochs": 2}, {}]} | DROPS, [1, 1, 0.5, 0.5, 1, 1, 0.5, 0.5]),
])
def test_rates_warm_up_and_fall_as_worked_by_hand(steps: int, training: dict[str, Any], expected: list[float]) -> None:
    spec = TrainingSpec.model_validate(training)
    found = [rate_factor(spec, n / steps, steps_per_epoch=steps) for n in range(total_steps(spec, steps))]
    assert found == pytest.approx(expected)


def test_a_step_that_begins_behind_the_end_still_has_the_rate_of_a_last_one() -> None:
    """42 pairs in batches of 8: step 5 begins at pair 40, beyond 0.84 epochs = 35.28 pairs."""
    training = TrainingSpec(epochs=0.84, linear_schedule={"warmup_steps": 0})
    assert total_steps(training, 6) == 6
    assert rate_factor(training, 40 / 42, steps_per_epoch=6) == pytest.approx((1 / 6) / 0.84)


def test_a_warm_up_longer_than_what_it_warms_up_is_refused() -> None:
    steps = {"warmup_steps": 2}
    for part, training in (
        ("the training", TrainingSpec(epochs=1, linear_schedule=steps)),
        ("training.phases[1]", TrainingSpec(epochs=3, phases=PHASES, linear_schedule=steps)),
    ):
        with refused("VSE-T008", by=ConfigError, got=2, part=part, steps=2.0):
            require_room_for_warmup(training, steps_per_epoch=2)
    over_all = TrainingSpec(epochs=3, phases=PHASES, linear_schedule=steps | {"over": "training"})
    require_room_for_warmup(over_all, steps_per_epoch=2)
