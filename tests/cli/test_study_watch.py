"""`vsetune study list`, `show` and `stop`: a study seen and stopped through its folder alone."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from vsetune.cli import output
from vsetune.records.events import AttemptStart, StudyRecord, ValidationPoint
from vsetune.records.studies import Studies, folder_of_study
from vsetune.records.study_lock import locked_study
from vsetune.records.writer import StudyWriter
from vsetune.study.run import stop_watched
from vsetune.study.stopping import StopRequest

CONFIG = {
    "study": "nightly", "data": {"path": "data/scenes"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}],
    "training": {"epochs": 4}, "search": {"configurations": 3}, "seeds": [0, 1], "baseline": "lmh",
}


def start(trial: str, number: int = 1, **environment: str) -> AttemptStart:
    return AttemptStart(
        "nightly", trial, "vsepp.lmh", "vsepp", "lmh", number, 0, "search", {}, {"training": {"epochs": 4}}, environment
    )


def points(until: int, device_seconds: float) -> list[ValidationPoint]:
    """A validation per epoch, each after as many device-seconds."""
    return [
        ValidationPoint(10 * epoch, float(epoch), 400 * epoch, 20.0 + epoch, epoch * device_seconds / 2,
                        {"device_seconds": epoch * device_seconds})
        for epoch in range(1, until + 1)
    ]


@pytest.fixture
def left(opened: Callable[[StudyRecord], StudyWriter]) -> StudyWriter:
    """One trial done for a dollar and a half in two attempts, one on a node without a price that had not ended when the
    driver died."""
    store = opened(StudyRecord("nightly", "f00d", CONFIG))
    first = store.start_attempt(start("a", usd_per_hour="0.5", node_type="gpu_t4", node="10.0.0.7"))
    store.record_points(first, points(2, 1800.0))
    store.finish_attempt(first, "killed", summary={}, error="its node was taken away")
    second = store.start_attempt(start("a", 2, usd_per_hour="1.0", node_type="gpu_a10g"))
    store.record_points(second, points(4, 1800.0))
    store.finish_attempt(second, "finished", summary={"device_seconds": 7200.0}, error=None)
    store.record_points(store.start_attempt(start("b", device_name="a laptop")), points(1, 360.0))
    return store


@pytest.fixture
def store(left: StudyWriter) -> Iterator[StudyWriter]:
    """The same, and its driver lives."""
    with locked_study(folder_of_study("nightly")):
        yield left


def test_a_study_is_listed_with_its_share_and_its_cost(vsetune, store) -> None:
    said = vsetune("study", "list")
    assert said.code == 0
    (row,) = [line for line in said.out.splitlines() if "nightly" in line]
    assert re.split(r"\s{2,}", row)[:7] == ["nightly", "running", "1 of 4", "1", "5.0", "2.10", "$1.50"]


def test_each_attempt_pays_what_its_own_node_costs(vsetune, store) -> None:
    """An hour for half a dollar, then an hour for one: the epochs that the second attempt inherited are paid once."""
    plain = json.loads(vsetune("study", "show", "nightly", "--json").out)
    done, running = plain["each"]
    assert (done["status"], done["attempts"], done["usd"], done["place"]) == ("finished", 2, 1.5, "gpu_a10g")
    assert (running["status"], running["usd"], running["place"]) == ("running", None, "a laptop")
    assert (plain["usd"], plain["unpriced_device_seconds"], plain["device_seconds"]) == (1.5, 360.0, 7560.0)


def test_a_study_is_shown_with_what_runs_where(vsetune, store) -> None:
    said = vsetune("study", "show", "nightly")
    assert said.code == 0
    assert re.search(r"nightly: running, last sign \d+ s ago", said.out)
    assert "trials: 1 of 4 done (1 finished, 1 running)" in said.out
    assert "$1.50, without 0.10 device-hours on nodes that have no price" in said.out
    assert "1.00 of 4" in said.out
    assert "a laptop" in said.out
    assert "gpu_a10g" not in said.out
    assert "gpu_a10g" in vsetune("study", "show", "nightly", "--all").out


def test_names_are_whole_on_a_terminal_of_80_columns_and_no_prices_take_no_column(vsetune, opened, monkeypatch) -> None:
    monkeypatch.setattr(output.results, "width", 80)
    store = opened(StudyRecord("nightly", "f00d", CONFIG))
    name = "vse_infinity.info_nce-c002-s0"
    run = store.start_attempt(start(name, node="10.0.0.7"))
    store.finish_attempt(run, "pruned", summary={}, error="asha: 24.2 % at epoch 2")
    said = vsetune("study", "show", "nightly", "--all")
    assert name in said.out
    assert "asha: 24.2 % at epoch 2" in said.out
    assert "cost  " not in said.out
    assert "…" not in said.out
    assert "because" not in vsetune("study", "list").out


def test_a_study_of_components_that_are_not_here_is_shown_all_the_same(vsetune, opened) -> None:
    strange = CONFIG | {"study": "strange", "losses": [{"name": "their_own"}], "baseline": "their_own"}
    opened(StudyRecord("counted", "beef", strange | {"study": "counted"}, {"promised_trials": "12"}))
    assert "trials: 0 of 12 done (none yet)" in vsetune("study", "show", "counted").out
    store = opened(StudyRecord("strange", "beef", strange))
    said = vsetune("study", "show", "strange")
    assert said.code == 0
    assert "trials: 0 of ? done (none yet)" in said.out
    name = "vse_infinity.their_own-c000-s0"
    store.finish_attempt(
        store.start_attempt(replace(start(name), study="strange")), "finished", summary={}, error=None
    )
    store.finish_study("finished")
    assert "trials: 1 of 1 done (1 finished)" in vsetune("study", "show", "strange").out


def test_a_study_whose_driver_died_is_interrupted_and_so_are_its_trials(vsetune, left) -> None:
    said = vsetune("study", "show", "nightly")
    assert "nightly: interrupted" in said.out
    assert "trials: 1 of 4 done (1 finished, 1 interrupted)" in said.out
    (row,) = [line for line in said.out.splitlines() if "a laptop" in line]
    assert "open" in row
    assert "running" not in said.out
    assert "the process that ran the study died" in " ".join(said.out.split())
    plain = json.loads(vsetune("study", "show", "nightly", "--json").out)
    assert (plain["status"], plain["trials"]) == ("killed", {"promised": 4, "finished": 1, "killed": 1})
    assert "interrupted" in vsetune("study", "list").out
    assert "is not running (interrupted)" in vsetune("study", "stop", "nightly").err


def test_a_failed_study_is_listed_as_failed(vsetune, store) -> None:
    store.finish_study("failed")
    assert "nightly: failed" in vsetune("study", "show", "nightly").out


@pytest.mark.parametrize("command", ["show", "stop"])
def test_a_name_that_no_study_has(vsetune, store, command) -> None:
    assert vsetune("study", command, "nightyl").refused("nightyl", "nightly")


@pytest.mark.parametrize(("status", "shown"), [
    ("failed", "(failed), nothing to stop"), ("finished", "(finished), nothing to stop"),
    ("killed", "(interrupted), nothing to stop; if it was resumed a moment ago repeat this in a minute"),
])
def test_a_study_that_has_ended_needs_no_stop(vsetune, store, status, shown) -> None:
    store.finish_study(status)
    said = vsetune("study", "stop", "nightly")
    assert (said.code, said.lines) == (0, [f"study nightly: is not running {shown}"])


@pytest.mark.parametrize(
    ("ends_as", "told"),
    [("killed", "stopped; go on with --resume, or by submitting it again"),
     ("finished", "has finished meanwhile, so nothing was left to stop")],
)
def test_a_driver_elsewhere_stops(vsetune, store, ends_as, told) -> None:
    """The driver is a thread that ends its study once `stop` is requested; nothing but its folder is between them."""
    stop, is_there = StopRequest(), threading.Event()
    Studies().ask_to_stop("nightly", "an old request, which an earlier driver has followed")

    def drive() -> None:
        with stop_watched("nightly", stop, every_s=0.05):
            is_there.set()
            for _ in range(400):
                if stop.is_requested:
                    break
                time.sleep(0.05)
            store.finish_study(ends_as)

    driver = threading.Thread(target=drive)
    driver.start()
    assert is_there.wait(10)
    said = vsetune("study", "stop", "nightly")
    driver.join(30)
    assert said.code == 0, said.err
    assert said.lines[-1] == f"study nightly: {told}"
    assert stop.reason is not None
    assert " by " in stop.reason
    assert "old request" not in stop.reason
