"""The numbers of a night, out of attempts as the tracking store gives them."""

from __future__ import annotations

import math
from typing import Any

from written_fields import as_written

from vsetune.nightly.measuring import cell_nights, conditions_of, unmeasured
from vsetune.nightly.night import BY_NAME
from vsetune.records.events import AttemptStart, AttemptStatus
from vsetune.records.state import Attempt

TAKEN = {"vsepp.lmh": {"step_time": 1.5, "step_wall_time": 2.0}}
SUMMARY = {
    "epoch_products": 100.0, "epoch_wall_products": 130.0, "pairs_per_product": 20.0, "peak_memory_bytes": 6e8,
    "start_products": 3.0, "load_seconds": 1.0, "train_seconds": 3.0,
}
CURVE = ((0.5, 10.0), (1.0, 30.0), (2.0, 20.0))


def attempt(
    trial: str = "a", cell: str = "vsepp.lmh", number: int = 1, status: AttemptStatus = "finished",
    curve: Any = CURVE, error: str | None = None, environment: Any = None, **summary: float,
) -> Attempt:
    start = AttemptStart(
        "s", trial, cell, "vsepp", "lmh", number, 0, "search", {}, {}, environment or {"threads": "1"},
        {"data_fingerprint": "abc", "tie_rule": "pessimistic", "batch_size": 40},
    )
    return as_written(Attempt(trial, start, status, tuple(curve), SUMMARY | summary, error))


def measured(*attempts: Attempt, seeds: int = 1, target: float = 25.0) -> Any:
    return cell_nights(attempts, ["vsepp.lmh"], seeds=seeds, target=target, first=TAKEN)["vsepp.lmh"]


def test_every_measure_of_a_finished_trial() -> None:
    cell = measured(attempt())
    assert cell.trouble is None
    assert cell.values == {
        "best_m_recall": 30.0, "epochs_to_target": 1.0, "m_recall_area": (0.5 * 10 + 0.5 * 30 + 1.0 * 20) / 2,
        "step_time": 1.5, "step_wall_time": 2.0, "epoch_time": 100.0, "epoch_wall_time": 130.0,
        "pair_rate": 20.0, "peak_memory": 6e8, "start_time": 3.0, "data_wait": 0.25,
    }
    assert cell.values.keys() == BY_NAME.keys()
    assert list(unmeasured("vsepp.lmh", cell, {})) == []


def test_seeds_are_averaged_and_a_target_never_reached_counts_with_the_last_epoch() -> None:
    never = attempt("b", curve=((0.5, 5.0), (2.0, 10.0)))
    cell = measured(attempt(), never, seeds=2)
    assert cell.values["best_m_recall"] == 20.0
    assert cell.values["epochs_to_target"] == 1.5


def test_a_trial_that_went_on_counts_once_with_its_last_attempt() -> None:
    killed = attempt(status="killed", curve=CURVE[:1], error="its process died")
    assert measured(attempt(number=2), killed) == measured(attempt(number=2))


def test_a_cell_with_a_failed_trial_says_so_in_one_line() -> None:
    failed = attempt("b", status="failed", curve=(), error="loss is not finite")
    cell = measured(attempt(), failed, seeds=2)
    assert cell.trouble == "1 of 2 trials finished: loss is not finite"
    assert list(unmeasured("vsepp.lmh", cell, {})) == ["vsepp.lmh: 1 of 2 trials finished: loss is not finite"]
    assert measured().trouble == "0 of 1 trials finished"


def test_a_measure_that_is_not_finite_is_told_and_left_out() -> None:
    cell = measured(attempt(epoch_products=math.nan))
    assert "epoch_time" not in cell.values
    assert list(unmeasured("vsepp.lmh", cell, {})) == ["vsepp.lmh: no finite epoch_time"]


def test_first_losses_that_failed_or_are_no_numbers_are_told() -> None:
    first = {"vsepp.lmh": {**TAKEN["vsepp.lmh"], "losses": (1.0, math.inf)}, "vsepp.lse": {"problem": "no data"}}
    cell = cell_nights([attempt()], ["vsepp.lmh"], seeds=1, target=1, first=first)["vsepp.lmh"]
    assert list(unmeasured("vsepp.lmh", cell, first)) == ["vsepp.lmh: first losses: not all are finite"]
    assert list(unmeasured("vsepp.lse", cell, first)) == ["vsepp.lse: first losses: no data"]


def test_conditions_are_those_of_the_workers_without_what_cells_differ_in() -> None:
    here = {"threads": "1", "package_torch": "2", "package_vsetune": "1", "git_revision": "abc", "platform": "kernel"}
    assert conditions_of([attempt(environment=here)]) == {
        "threads": "1", "package_torch": "2", "data": "abc", "protocol.tie_rule": "pessimistic",
    }
    mixed = conditions_of([attempt(environment=here), attempt(environment=here | {"threads": "4"})])
    assert mixed["threads"] == "1 | 4"
    assert conditions_of([]) == {}
