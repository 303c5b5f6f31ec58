"""What a worker measures beside its trial: time to start, memory, times in calibration products."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from vsetune.records.events import ValidationPoint
from vsetune.study.trial_measures import CALIBRATION_METRIC, TrialMeter
from vsetune.training.calibration import Calibration, calibrate, working_clock
from vsetune.training.device import peak_memory_bytes, reset_peak_memory

CPU = torch.device("cpu")


def point(step: int, epoch: float, trained: float, loaded: float) -> ValidationPoint:
    return ValidationPoint(step, epoch, step * 10, 1.0, trained, {"load_seconds": loaded})


def test_times_are_told_in_calibration_products_of_their_own_window() -> None:
    meter = TrialMeter(CPU, calibrates=True)
    meter.opened()
    worked = iter([0.0, 2.0, 2.0, 5.0])
    first = meter.around(lambda: point(10, 0.5, 2.0, 1.0), [], lambda: next(worked))
    second = meter.around(lambda: point(20, 1.0, 8.0, 4.0), [first], lambda: next(worked))
    summary = meter.summary()
    passed = [each.metrics[CALIBRATION_METRIC] for each in (first, second)]
    assert all(each > 0 for each in passed)
    assert summary["calibration_seconds"] == pytest.approx(np.median(passed))
    rates = [100 / 3.0 * passed[0], 100 / 9.0 * passed[1]]
    assert summary["pairs_per_product"] == pytest.approx(np.median(rates))
    assert summary["start_products"] == pytest.approx(summary["start_seconds"] / summary["calibration_seconds"])
    work = [window.calibration.worked for window in meter.windows]
    assert summary["epoch_products"] == pytest.approx(np.median([4.0 / work[0], 6.0 / work[1]]))
    trained = [2.0 / 0.5 / passed[0], 6.0 / 0.5 / passed[1]]
    assert summary["epoch_wall_products"] == pytest.approx(np.median(trained))


def test_an_epoch_that_waits_in_its_steps_takes_longer_by_the_wall_clock_alone() -> None:
    quick, waiting = (TrialMeter(CPU, calibrates=True) for _ in range(2))
    for meter, trained in ((quick, 2.0), (waiting, 2.6)):  # 30 % of waiting: a lock, a disk, a sleep
        worked = iter([0.0, 2.0])
        meter.around(lambda trained=trained: point(10, 0.5, trained, 0.0), [], lambda worked=worked: next(worked))
        meter.windows[0] = replace(meter.windows[0], calibration=Calibration(passed=0.01, worked=0.01))
    assert waiting.summary()["epoch_products"] == quick.summary()["epoch_products"]
    assert waiting.summary()["epoch_wall_products"] == pytest.approx(1.3 * quick.summary()["epoch_wall_products"])


def test_work_is_counted_without_the_seconds_that_pass_idle() -> None:
    clock = working_clock(CPU)
    begin = clock()
    threading.Event().wait(0.2)
    assert clock() - begin < 0.1


def test_a_trial_that_is_not_calibrated_tells_memory_and_start_alone() -> None:
    meter = TrialMeter(CPU, calibrates=False)
    given = point(10, 0.5, 2.0, 1.0)
    assert meter.summary().keys() <= {"peak_memory_bytes"}
    meter.opened()
    assert meter.around(lambda: given, [], lambda: 0.0) is given
    assert meter.summary().keys() <= {"peak_memory_bytes", "start_seconds"}


def test_a_calibration_changes_no_random_number() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    calibrate(CPU)
    assert torch.equal(torch.rand(4), expected)


def test_the_peak_of_memory_is_that_since_it_was_reset() -> None:
    held = np.ones(100 * 2**20, np.uint8)
    with_it = peak_memory_bytes(CPU)
    if with_it is None:
        pytest.skip("the peak of a process can be reset on Linux alone, through /proc")
    del held
    reset_peak_memory(CPU)
    without = peak_memory_bytes(CPU)
    assert without is not None
    again = np.ones(50 * 2**20, np.uint8)
    grown = peak_memory_bytes(CPU)
    assert grown is not None
    assert with_it - without > 50 * 2**20
    assert grown - without > 25 * 2**20
    assert again[-1] == 1
