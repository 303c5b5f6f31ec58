"""Changed files of a trial: told in one line, set aside, and the trial starts again."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from vsetune.config.study.training import TrialSpec
from vsetune.errors import DamagedCheckpoint, StaleCheckpoint
from vsetune.training.attempt import Attempt
from vsetune.training.checkpoint import BEST_FILE, CHECKPOINT_FILE, CheckpointFolder, sealed_state, set_aside
from vsetune.training.executions import EXECUTIONS_FILE, PROGRESS_FILE

MakeTrial = Callable[..., TrialSpec]


def attempt(trial: TrialSpec, folder: Path) -> Attempt:
    return Attempt(trial, folder, device="cpu", threads=None)


@pytest.fixture(scope="module")
def first_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("first") / "trial"


@pytest.fixture
def trained(make_trial: MakeTrial, first_folder: Path, tmp_path: Path) -> tuple[TrialSpec, Path]:
    """A trial after its first validation, in a folder of its own."""
    trial = make_trial()
    if not first_folder.exists():
        first = attempt(trial, first_folder)
        first.advance()
        first.close()
    return trial, Path(shutil.copytree(first_folder, tmp_path / "trial"))


def without_seal(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """As a vsetune from before there were seals might have written it, or somebody by hand."""
    saved = torch.load(folder / CHECKPOINT_FILE, weights_only=True)
    del saved["sealed"], saved["best_sha256"]
    change(saved)
    torch.save(saved, folder / CHECKPOINT_FILE)


def error_of(trained: tuple[TrialSpec, Path]) -> str:
    with pytest.raises(StaleCheckpoint) as caught:
        attempt(*trained)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_checkpoint_without_a_seal_still_loads(trained: tuple[TrialSpec, Path]) -> None:
    without_seal(trained[1], lambda saved: None)
    assert sealed_state(trained[1] / CHECKPOINT_FILE) is None
    assert attempt(*trained).inherited == 1


@pytest.mark.parametrize(("place", "reason"), [
    (100, "its SHA-256 is not the one at its end"),
    (5000, "its SHA-256 is not the one at its end"),
    (-500, "its SHA-256 is not the one at its end"),
    (-40, "(its SHA-256 is not the one at its end|it has lost its seal)"),  # in the seal: another digit, or none
])
def test_a_flipped_byte_anywhere_is_found(trained: tuple[TrialSpec, Path], place: int, reason: str) -> None:
    path = trained[1] / CHECKPOINT_FILE
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    assert re.search(reason, error_of(trained))


def test_a_checkpoint_that_lost_its_seal_is_found(trained: tuple[TrialSpec, Path]) -> None:
    path = trained[1] / CHECKPOINT_FILE
    path.write_bytes(path.read_bytes()[:-82])
    assert "it has lost its seal" in error_of(trained)


def test_best_weights_of_another_trial_are_found(trained: tuple[TrialSpec, Path]) -> None:
    path = trained[1] / BEST_FILE
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert "its SHA-256 is not the one in the checkpoint" in error_of(trained)
    path.unlink()
    assert "cannot read the best weights (no such file)" in error_of(trained)


def put(*keys: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(saved: dict[str, Any]) -> None:
        inner: Any = saved["state"]
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value

    return change


def first_weight(saved: dict[str, Any]) -> Any:
    return next(iter(saved["state"]["learner"]["network"].values()))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (put("learner", value=[]), "its learner is list"),
        (put("learner", "phase", value=7), "phase 7, the trial has 1"),
        (put("learner", "network", value={}), "Missing key"),
        (put("learner", "optimizers", value={}), "network"),
        (put("learner", "optimizers", "network", "param_groups", 0, "betas", value=None), "betas is None"),
        (put("learner", "optimizers", "network", "state", 0, "exp_avg", value=torch.zeros(1)), "exp_avg does not fit"),
        (
            put("learner", "optimizers", "network", "state", 0, "step", value=torch.tensor(1 + 2j)),
            "step holds complex numbers",
        ),
        (put("started", value=torch.zeros(0)), "its start is tensor"),
        (put("started", value={"from": 3}), "its start is {'from': 3}"),
        (put("random", "python", value=[3, torch.zeros(2, dtype=torch.int64), None]), "state vector"),
        (put("random", "torch", value=torch.zeros(3, dtype=torch.uint8)), "Expected a CPU"),
        (put("progress", "step", value=-1), "step is -1"),
        (put("progress", "train_seconds", value=float("nan")), "train_seconds is nan"),
        (put("progress", "history", value=[{"step": 1}]), "a validation of its history is none"),
        (put("progress", "best_step", value=3), "its best validation is not the best"),
        (put("progress", "more", value=3), "progress has the fields"),
        (put("best_step", value="../../x"), "its best step is ../../x"),
        (lambda saved: first_weight(saved).fill_(float("nan")), "holds NaN"),
        (lambda saved: saved.update(state=None), "its best step is nothing"),
        (lambda saved: saved.update(format=torch.zeros(2)), "its format is tensor"),
    ],
)
def test_a_state_that_does_not_fit_is_one_line(
    trained: tuple[TrialSpec, Path], change: Callable[[dict[str, Any]], Any], reason: str
) -> None:
    without_seal(trained[1], change)
    assert reason in error_of(trained)


def test_a_packed_archive_is_refused_before_it_is_unpacked(trained: tuple[TrialSpec, Path]) -> None:
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(50_000_000))
    (trained[1] / CHECKPOINT_FILE).write_bytes(bomb.getvalue())
    assert "packed members" in error_of(trained)


def test_a_fifo_instead_of_a_checkpoint_is_not_waited_for(trained: tuple[TrialSpec, Path]) -> None:
    (trained[1] / CHECKPOINT_FILE).unlink()
    os.mkfifo(trained[1] / CHECKPOINT_FILE)
    assert "no regular file" in error_of(trained)


@pytest.mark.parametrize("name", [EXECUTIONS_FILE, PROGRESS_FILE])
@pytest.mark.parametrize("content", ["", "[]", "null1", '{"number": -1}', "[" * 100_000, '{"number": NaN}'])
def test_a_damaged_count_is_set_aside_and_the_checkpoint_stays(
    trained: tuple[TrialSpec, Path], name: str, content: str
) -> None:
    (trained[1] / name).write_text(content)
    assert name in error_of(trained)
    assert set_aside(trained[1], "damaged") == [trained[1] / f"{name}.damaged-1"]
    assert attempt(*trained).inherited == 1


def test_a_damaged_checkpoint_is_set_aside_and_the_trial_starts_again(trained: tuple[TrialSpec, Path]) -> None:
    trial, folder = trained
    for number in (1, 2):
        (folder / CHECKPOINT_FILE).write_bytes(b"\0" * 100)
        with pytest.raises(DamagedCheckpoint) as caught:
            attempt(trial, folder)
        set_aside(folder, str(caught.value))
        assert (folder / f"{CHECKPOINT_FILE}.damaged-{number}").read_bytes() == b"\0" * 100
    again = attempt(trial, folder)
    assert (again.inherited, again.number) == (0, 2)
    again.advance()
    again.close()
    assert json.loads((folder / EXECUTIONS_FILE).read_text())["wasted_pairs"] > 0


def test_a_checkpoint_of_another_trial_is_not_damaged(trained: tuple[TrialSpec, Path]) -> None:
    with pytest.raises(StaleCheckpoint) as caught:
        CheckpointFolder(trained[1], fingerprint="other", data="data").load()
    assert not isinstance(caught.value, DamagedCheckpoint)


def test_what_a_killed_process_left_half_written_is_removed(trained: tuple[TrialSpec, Path]) -> None:
    (trained[1] / f"{CHECKPOINT_FILE}.partial").write_bytes(b"half")
    attempt(*trained)
    assert not list(trained[1].glob("*.partial"))
