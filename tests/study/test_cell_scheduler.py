"""The scheduler decides about the points of the curve, whoever reports them, and in the epochs of each cell."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

from ray import cloudpickle

from vsetune.config.study.study_spec import ConstraintSpec, SchedulerSpec
from vsetune.records.state import Trial
from vsetune.search.stopping.rules import Halving
from vsetune.study.ledger import StudyLedger
from vsetune.study.trainable import as_result
from vsetune.study.tune_adapter import CellScheduler


def trial(name: str, *, cell: str = "a", phase: str = "search") -> Any:
    return SimpleNamespace(config={"trial": {"trial": name, "cell": cell}, "phase": phase})


def point(epoch: float, m_recall: float) -> dict[str, Any]:
    return {"event": "point", "point": {"epoch": epoch, "m_recall": m_recall}}


def opened(*points: tuple[float, float]) -> dict[str, Any]:
    return {"event": "opened", "inherited": [{"epoch": epoch, "m_recall": m_recall} for epoch, m_recall in points]}


def scheduler(**epochs: float) -> CellScheduler:
    return CellScheduler(SchedulerSpec(kind="asha", grace_epochs=1, reduction_factor=2), epochs=epochs or {"a": 4.0})


def decided(scheduler: CellScheduler, trial: Any, report: dict[str, Any]) -> str:
    return scheduler.on_trial_result(None, trial, as_result(report))


def rungs_of(found: CellScheduler, cell: str) -> dict[float, dict[str, float]]:
    rule = found.rules[cell]
    assert isinstance(rule, Halving)
    return rule.rungs()


def test_why_a_trial_was_stopped_is_kept() -> None:
    halving = scheduler()
    decided(halving, trial("first"), point(1, 50))
    decided(halving, trial("second"), point(1, 40))
    assert halving.reasons == {"second": "asha: 40.0 % at epoch 1, needs 50.0 % (1 earlier trial)"}


def test_the_worse_trial_of_a_rung_stops_and_the_first_goes_on() -> None:
    halving = scheduler()
    assert decided(halving, trial("first"), point(1, 50)) == "CONTINUE"
    assert decided(halving, trial("second"), point(1, 40)) == "STOP"


def test_a_validation_the_driver_did_not_hear_of_is_decided_when_the_next_attempt_inherits_it() -> None:
    halving = scheduler()
    decided(halving, trial("first"), point(1, 50))
    assert decided(halving, trial("second"), opened((1, 40))) == "STOP"
    assert decided(halving, trial("third"), opened((0.5, 60), (1, 60))) == "CONTINUE"


def test_only_the_last_inherited_validation_decides() -> None:
    """What was decided at the earlier ones is known: the trial went on."""
    halving = scheduler()
    decided(halving, trial("first"), point(1, 50))
    assert decided(halving, trial("second"), opened((1, 40), (1.5, 45))) == "CONTINUE"


def resumed_with(*trials: list[list[tuple[float, float]]]) -> CellScheduler:
    """In a new driver. trials: of each the curves of its attempts."""
    known: dict[str, Any] = {}
    for n, curves in enumerate(trials):
        attempts: list[Any] = [SimpleNamespace(curve=curve) for curve in curves]
        known[f"t{n}"] = SimpleNamespace(phase="search", cell="a", attempts=Trial(attempts))
    found = scheduler()
    found.replay(cast(StudyLedger, SimpleNamespace(trials=known)))
    return found


def test_a_trial_that_goes_on_from_an_older_checkpoint_passes_again_what_it_had_passed() -> None:
    """It was first at its rung; trials are replayed by number."""
    found = resumed_with([[(1, 50), (2, 50)]], [[(0.5, 30), (1, 40), (1.5, 45)]])
    said = [opened((0.5, 30)), point(1, 40), point(1.5, 45), point(2, 45)]
    assert [decided(found, trial("t1"), each) for each in said] == [*["CONTINUE"] * 3, "STOP"]


def test_what_an_attempt_before_the_last_has_passed_is_passed_too() -> None:
    found = resumed_with([[(1, 50)]], [[(0.5, 30), (1, 40), (1.5, 45)], [(0.5, 30)]])
    said = [opened((0.5, 30)), point(1, 40), point(1.5, 45)]
    assert [decided(found, trial("t1"), each) for each in said] == ["CONTINUE"] * 3


def test_a_longer_cell_has_rungs_of_its_own() -> None:
    halving = scheduler(a=2.0, b=8.0)
    assert set(rungs_of(halving, "a")) == {1.0}
    assert set(rungs_of(halving, "b")) == {1.0, 2.0, 4.0}
    assert decided(halving, trial("long", cell="b"), point(4, 50)) == "CONTINUE"


def test_confirming_runs_and_other_reports_never_stop() -> None:
    halving = scheduler()
    decided(halving, trial("first"), point(1, 50))
    assert decided(halving, trial("again", phase="confirm"), point(1, 1)) == "CONTINUE"
    assert decided(halving, trial("second"), {"event": "failed"}) == "CONTINUE"


def measured(epoch: float, *, seconds_per_epoch: float, gib: float = 1.0) -> dict[str, Any]:
    summary = {"epochs": epoch, "seconds_per_epoch": seconds_per_epoch, "peak_memory_bytes": gib * 2.0**30}
    return point(epoch, 40.0) | {"summary": summary}


def constrained() -> CellScheduler:
    limits = ConstraintSpec(seconds_per_epoch=20, peak_memory_gib=4)
    return CellScheduler(
        SchedulerSpec(kind="none"), epochs={"a": 4.0}, target_of=lambda cell: 30.0 if cell == "b" else None,
        constraints=limits,
    )


def test_a_trial_that_is_too_slow_stops_after_its_first_whole_epoch_and_not_before() -> None:
    found = constrained()
    assert decided(found, trial("slow"), measured(0.9, seconds_per_epoch=31.2)) == "CONTINUE"
    assert decided(found, trial("slow"), measured(1.1, seconds_per_epoch=31.2)) == "STOP"
    assert decided(found, trial("fast"), measured(1.1, seconds_per_epoch=20)) == "CONTINUE"
    assert found.reasons == {"slow": "constraint seconds_per_epoch: 31.2 > 20"}


def test_a_trial_that_holds_too_much_memory_stops_at_once_even_where_it_reaches_its_target() -> None:
    found = constrained()
    assert decided(found, trial("large", cell="b"), measured(0.1, seconds_per_epoch=9, gib=5)) == "STOP"
    assert decided(found, trial("bit", cell="b"), measured(0.1, seconds_per_epoch=9, gib=4.0001)) == "STOP"
    assert found.reasons == {
        "large": "constraint peak_memory_gib: 5 > 4", "bit": "constraint peak_memory_gib: 4.0001 > 4",
    }


def test_what_breaks_a_constraint_goes_on_while_it_confirms_and_is_stopped_where_an_attempt_inherits_it() -> None:
    found, told = constrained(), measured(2.0, seconds_per_epoch=31.2)
    assert decided(found, trial("again", phase="confirm"), told) == "CONTINUE"
    inherits = {"summary": told["summary"]}
    assert decided(found, trial("new"), opened() | inherits) == "CONTINUE"
    assert decided(found, trial("slow"), opened((2.0, 40.0)) | inherits) == "STOP"


def test_tune_may_pickle_it_whatever_it_holds() -> None:
    """As the searcher and the callback, which hold locks and connections."""
    lock = threading.RLock()
    asked = CellScheduler(SchedulerSpec(), epochs={"a": 4.0}, target_of=lambda cell: 50.0 if lock else None)
    cloudpickle.dumps(asked)
