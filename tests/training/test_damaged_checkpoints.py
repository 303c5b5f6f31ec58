"""Changed files of a trial: told in one line, set aside, and the trial starts again."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nested_places
import pytest
import torch
from refusals import refused

from vsetune.config.study.training import TrialSpec
from vsetune.errors import DamagedCheckpoint, StaleCheckpoint
from vsetune.training.attempt import TrainingAttempt
from vsetune.training.checkpoint import CHECKPOINT_FILE, CheckpointFolder, seal_of, set_aside
from vsetune.training.executions import EXECUTIONS_FILE, PROGRESS_FILE

MakeTrial = Callable[..., TrialSpec]


def attempt(trial: TrialSpec, folder: Path) -> TrainingAttempt:
    return TrainingAttempt(trial, folder, device="cpu", threads=None)


@pytest.fixture(scope="module")
def first_folder(make_trial: MakeTrial, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first") / "trial"
    first = attempt(make_trial(), folder)
    first.advance()
    first.close()
    return folder


@pytest.fixture
def trained(make_trial: MakeTrial, first_folder: Path, tmp_path: Path) -> tuple[TrialSpec, Path]:
    """A trial after its first validation, in a folder of its own."""
    return make_trial(), Path(shutil.copytree(first_folder, tmp_path / "trial"))


def resealed(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """As another version might have written it, or somebody by hand."""
    saved = torch.load(folder / CHECKPOINT_FILE, weights_only=True)
    change(saved)
    stream = io.BytesIO()
    torch.save(saved, stream)
    (folder / CHECKPOINT_FILE).write_bytes(stream.getvalue() + seal_of(stream.getvalue()))


def assert_refused(trained: tuple[TrialSpec, Path], message: str, **fields: Any) -> str:
    with refused(message, by=StaleCheckpoint, **fields) as caught:
        attempt(*trained)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def flipped(place: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[place] ^= 1
        path.write_bytes(content)

    return change


@pytest.mark.parametrize(("name", "change"), [
    *((CHECKPOINT_FILE, flipped(place)) for place in (100, 5000, -500, -40)),  # the last one: in the seal
    (CHECKPOINT_FILE, lambda path: path.write_bytes(path.read_bytes()[:-82])),  # without its seal
])
def test_a_changed_file_is_found(
    trained: tuple[TrialSpec, Path], name: str, change: Callable[[Path], Any]
) -> None:
    change(trained[1] / name)
    assert_refused(trained, "VSE-T010", file=trained[1] / name)


def put(*keys: Any, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda saved: nested_places.put(saved, ("state", *keys), value)


def first_weight(saved: dict[str, Any]) -> Any:
    return next(iter(saved["state"]["learner"]["network"].values()))


WINDOW = {
    "pairs": 1, "seconds_before": 0.0, "sums": {"train_loss": 1.0}, "counts": {"train_loss": 1}, "full_batches": 1,
}
DOES_NOT_FIT = [
    put("learner", value=[]), put("learner", "phase", value=7), put("learner", "network", value={}),
    put("learner", "optimizers", value={}),
    put("learner", "optimizers", "network", "param_groups", 0, "betas", value=None),
    put("learner", "optimizers", "network", "state", 0, "exp_avg", value=torch.zeros(1)),
    put("learner", "optimizers", "network", "state", 0, "step", value=torch.tensor(1 + 2j)),
    put("started", value=torch.zeros(0)), put("started", value={"from": 3}),
    put("random", "python", value=[3, torch.zeros(2, dtype=torch.int64), None]),
    put("random", "torch", value=torch.zeros(3, dtype=torch.uint8)), put("progress", "step", value=-1),
    put("progress", "train_seconds", value=float("nan")), put("progress", "history", value=[{"step": 1}]),
    put("progress", "best_step", value=3), put("progress", "more", value=3),
    lambda saved: first_weight(saved).fill_(float("nan")),
    *(put("window", value=WINDOW | {part: value}) for part, value in (
        ("pairs", -1), ("sums", {"train_loss": float("nan")}), ("counts", {}), ("full_batches", "two"), ("pairs", None),
    )),
]
NO_STATE = [
    put("best_step", value="../../x"), lambda saved: saved.update(state=None),
    lambda saved: saved.update(format=torch.zeros(2)),
]


@pytest.mark.parametrize(("message", "change"), [
    *(("VSE-T011", change) for change in DOES_NOT_FIT), *(("VSE-T010", change) for change in NO_STATE),
])
def test_a_sealed_file_that_holds_no_state_of_the_trial_is_one_line(
    trained: tuple[TrialSpec, Path], message: str, change: Callable[[dict[str, Any]], Any]
) -> None:
    resealed(trained[1], change)
    assert_refused(trained, message, file=trained[1] / CHECKPOINT_FILE)


def test_a_sound_window_is_taken(trained: tuple[TrialSpec, Path]) -> None:
    resealed(trained[1], put("window", value=WINDOW))
    assert attempt(*trained).inherited == 1


def test_a_fifo_instead_of_a_checkpoint_is_not_waited_for(trained: tuple[TrialSpec, Path]) -> None:
    (trained[1] / CHECKPOINT_FILE).unlink()
    os.mkfifo(trained[1] / CHECKPOINT_FILE)
    assert_refused(trained, "VSE-T010", reason="no regular file")


@pytest.mark.parametrize("name", [EXECUTIONS_FILE, PROGRESS_FILE])
@pytest.mark.parametrize("content", ["", "[]", "null1", '{"number": -1}', "[" * 100_000, '{"number": NaN}'])
def test_a_damaged_count_is_set_aside_and_the_checkpoint_stays(
    trained: tuple[TrialSpec, Path], name: str, content: str
) -> None:
    (trained[1] / name).write_text(content)
    assert_refused(trained, "VSE-T010", file=trained[1] / name)
    assert set_aside(trained[1], "damaged") == [trained[1] / f"{name}.damaged-1"]
    assert attempt(*trained).inherited == 1


def test_a_damaged_checkpoint_is_set_aside_and_the_trial_starts_again(trained: tuple[TrialSpec, Path]) -> None:
    trial, folder = trained
    for number in (1, 2):
        (folder / CHECKPOINT_FILE).write_bytes(b"\0" * 100)
        with pytest.raises(DamagedCheckpoint):
            attempt(trial, folder)
        set_aside(folder, "damaged")
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
