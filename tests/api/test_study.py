"""A study in Python: from a file, a mapping and keywords alike; it takes no signal handlers away."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from small_study import small_study
from trials_here import without_ray

import vsetune
from vsetune.study.stopping import StopRequest
from vsetune.study.study_file import load_study


def test_file_mapping_and_keywords_are_the_same_study(tmp_path: Path) -> None:
    study = small_study()
    file = study.save(tmp_path / "study.yaml")
    assert vsetune.Study.from_file(file).spec == study.spec == load_study(file)
    assert vsetune.Study(study.spec.to_plain()).spec == study.spec
    assert [*study.validate()["cell"]] == study.cells == ["vsepp.lmh", "vsepp.info_nce"]


def test_every_problem_of_a_study_is_reported() -> None:
    with pytest.raises(vsetune.ConfigError) as caught:
        small_study(losses=["lmh", "info_nse"], seeds=[])
    assert len(caught.value.problems) == 2
    assert all(each.startswith("study small: ") for each in caught.value.problems)


def test_a_study_is_planned(with_data, monkeypatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")  # nothing is measured
    plan = small_study().plan(seconds_per_cell=0.1)
    assert {*plan.unmeasured} == {"vsepp.lmh", "vsepp.info_nce"}


def test_a_run_leaves_the_handlers_of_its_process_alone(with_data, monkeypatch) -> None:
    without_ray(monkeypatch)
    during: list[Any] = []

    def look(*_: Any, **__: Any) -> None:
        during.append(signal.getsignal(signal.SIGTERM))

    def own(number: int, frame: object) -> None:
        raise AssertionError

    before = signal.signal(signal.SIGTERM, own)
    try:
        monkeypatch.setattr("vsetune.study.run.place_trials", look)
        with pytest.raises(KeyboardInterrupt, match=r"resume\(\) goes on"):  # as no trial was placed, work is left
            small_study(study="left").run(progress=False)
        assert during == [own]
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)
    assert vsetune.open_study("left").status == "killed"


def test_only_the_signals_that_a_request_is_for_request_a_stop() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        stop = StopRequest([signal.SIGINT])
        with stop.listening():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as Ray does
            stop.listen_again()
            os.kill(os.getpid(), signal.SIGTERM)
            assert heard == [signal.SIGTERM]
            assert not stop.is_requested
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.reason == "Ctrl-C"
    finally:
        signal.signal(signal.SIGTERM, before)
