"""A trial without a sign of life is ended once, one with signs never. Time is injected."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vsetune.jobs.signs_of_life import SignsOfLife
from vsetune.training.executions import PROGRESS_FILE


class World:
    """A clock, one placed trial, and who was ended."""

    def __init__(self, folder: Path) -> None:
        self.now, self.folder = 0.0, folder
        self.trial = SimpleNamespace(config={"trial": {"trial": "t"}, "folder": str(folder)})
        self.ended: list[int | None] = []
        self.told: bytes | None = None
        self.signs = SignsOfLife(30.0, clock=lambda: self.now, end=self._end, told=lambda name: self.told)
        self.signs.started(self.trial)

    def _end(self, trial: Any, actor: Any, pid: int | None) -> None:
        assert trial is self.trial
        self.ended.append(actor or pid)

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            self.signs.look()

    def mark(self, moment: int) -> None:
        path = self.folder / PROGRESS_FILE
        path.touch()
        os.utime(path, ns=(moment, moment))


def test_a_silent_trial_is_ended_once_and_the_reason_names_the_setting(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.signs.reported(world.trial, {"pid": 7, "hostname": socket.gethostname()})
    world.wait(29)
    assert world.ended == []
    world.wait(60)
    assert world.ended == [7]
    reason = world.signs.ended(world.trial)
    assert reason is not None
    assert "30 s (resources.silence_timeout_s)" in reason


def test_the_marker_in_a_folder_under_the_home_of_this_node_is_a_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a remote home workers are told a relative folder, which is under the home of whatever node they run on."""
    monkeypatch.setenv("VSETUNE_HOME", "s3://bucket/prefix")
    monkeypatch.setenv("VSETUNE_NODE_FOLDER", str(tmp_path))
    world = World(tmp_path / "runs" / "tiny")
    world.folder.mkdir(parents=True)
    world.trial.config["folder"] = "runs/tiny"
    for moment in range(1, 5):
        world.mark(moment)
        world.wait(25)
    assert world.ended == []


def test_a_trial_on_a_node_whose_folder_the_driver_does_not_see_lives_by_what_it_tells(tmp_path: Path) -> None:
    world = World(tmp_path)
    for pulse in range(6):
        world.told = str(pulse).encode()
        world.wait(25)
    assert world.ended == []
    world.wait(40)
    assert len(world.ended) == 1


def test_a_worker_that_is_being_made_for_too_long_is_ended(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.signs.ended(world.trial)
    for _ in range(4):
        world.signs.making([(world.trial, "actor")])
        world.wait(9)
    assert world.ended == ["actor"]
    assert "no sign of life for 30 s" in str(world.signs.ended(world.trial))


def test_a_worker_that_was_made_in_time_is_watched_from_its_start(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.signs.ended(world.trial)
    world.signs.making([(world.trial, "actor")])
    world.wait(29)
    world.signs.started(world.trial)
    world.signs.making([])
    world.wait(29)
    assert world.ended == []
    world.wait(5)
    assert world.ended == [None]


def test_a_worker_that_nobody_makes_any_more_is_not_watched(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.signs.ended(world.trial)
    world.signs.making([(world.trial, "actor")])
    world.signs.making([])
    world.wait(60)
    assert world.ended == []


def test_a_marker_that_moves_is_a_sign_whatever_its_clock_says(tmp_path: Path) -> None:
    world = World(tmp_path)
    for moment in (5_000, 1_000, 4_000):  # another machine's clock may be late
        world.mark(moment)
        world.wait(25)
    assert world.ended == []
    assert world.signs.ended(world.trial) is None


def test_a_worker_of_another_machine_is_not_looked_for_among_our_processes(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.signs.reported(world.trial, {"pid": 7, "hostname": "elsewhere"})
    world.wait(60)
    assert world.ended == [None]


def test_a_trial_that_is_no_longer_placed_is_not_ended(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.signs.ended(world.trial)
    world.wait(60)
    assert world.ended == []
