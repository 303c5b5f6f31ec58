"""What a machine did between two validations, in numbers that MLflow draws and nothing else reads."""

from __future__ import annotations

import threading
import time
from statistics import fmean

import pytest
import torch

from vsetune.config.study.study_spec import TrackingSpec
from vsetune.study.trial_measures import SystemMetrics

CPU = torch.device("cpu")
PROCESSOR = {"system/cpu_utilization_percentage", "system/process_cpu_utilization_percentage"}


def test_numbers_are_means_of_the_looks_since_the_last_validation() -> None:
    looks: list[float] = []

    def look() -> dict[str, float]:
        looks.append(float(len(looks)))
        return {"memory": looks[-1]}

    metrics = SystemMetrics(CPU, look=look, every_s=1e-3)
    try:
        while len(looks) < 20:
            time.sleep(1e-3)
        first = metrics.taken()["system/memory"]
    finally:
        metrics.close()
    second = metrics.taken()["system/memory"]
    count = round(2 * first + 1)  # 0, 1, ... have this mean
    assert count >= 20
    assert second == pytest.approx(fmean(looks[count:]))
    assert metrics.taken()["system/memory"] == looks[-1], "one look at the validation itself"


def test_a_look_that_fails_is_left_out_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    looks = 0

    def look() -> dict[str, float]:
        nonlocal looks
        looks += 1
        if looks <= 5:
            raise OSError("nothing under /proc")
        return {"memory": 7.0}

    metrics = SystemMetrics(CPU, look=look, every_s=1e-3)
    try:
        metrics.taken()
        for _ in range(5_000):
            if looks > 10:
                break
            time.sleep(1e-3)
        assert looks > 10, "the thread looks no more"
        assert metrics.taken()["system/memory"] == 7.0
    finally:
        metrics.close()
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == "use of the machine is not measured for now, training goes on (OSError: nothing under /proc)"


def test_without_a_look_in_between_the_validation_has_its_own() -> None:
    metrics = SystemMetrics(CPU, every_s=1e6)
    try:
        end = time.process_time() + 0.05
        while time.process_time() < end:
            pass
        found = metrics.taken()
    finally:
        metrics.close()
    assert {
        "system/system_memory_usage_megabytes", "system/system_memory_usage_percentage",
        "system/process_memory_usage_megabytes",
    } <= found.keys()
    assert all(value >= 0 for value in found.values())
    if PROCESSOR & found.keys():  # the clock of the processors moves in steps
        assert found["system/cpu_utilization_percentage"] <= 100
    assert "system-metrics" not in {thread.name for thread in threading.enumerate()}


def test_they_are_off_unless_asked_for() -> None:
    assert TrackingSpec().system_metrics is False


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_tells_its_memory() -> None:
    metrics = SystemMetrics(torch.device("cuda"), every_s=1e6)
    try:
        found = metrics.taken()
    finally:
        metrics.close()
    assert 0 < found["system/gpu_0_memory_usage_percentage"] <= 100
