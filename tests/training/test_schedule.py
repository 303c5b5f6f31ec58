import pytest

from vsetune.config.study.training import TrainingSpec
from vsetune.training.schedule import drop_factor, next_validation, phase_at, total_steps


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


def test_the_rate_stays_without_a_step() -> None:
    assert drop_factor(TrainingSpec(learning_rate_step=None), 99.0) == 1.0


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


def test_validations_come_at_ends_of_epochs_only_without_a_cadence() -> None:
    assert _validations(TrainingSpec(epochs=2.5), 6) == [6, 12, 15]


def test_a_phase_begins_at_the_end_of_the_one_before() -> None:
    training = TrainingSpec(epochs=4, phases=[{"epochs": 0.6}, {"epochs": 1.4}, {}])
    assert [phase_at(training, epoch) for epoch in (0, 0.5, 0.6, 1.9, 2.0, 3.99)] == [
        (0, 0.0), (0, 0.0), (1, 0.6), (1, 0.6), (2, 2.0), (2, 2.0),
    ]


def test_a_training_without_phases_is_one_phase() -> None:
    assert phase_at(TrainingSpec(epochs=4), 3.5) == (0, 0.0)
