from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from full_disk import largest_file

from vsetune.errors import StorageError
from vsetune.training.checkpoint import BEST_FILE, CHECKPOINT_FILE, CheckpointFolder

WEIGHTS = {"w": torch.tensor([1.0, 2.0])}


def folder(path: Path, fingerprint: str = "trial", data: str = "data") -> CheckpointFolder:
    return CheckpointFolder(path, fingerprint=fingerprint, data=data)


def state(step: int, **more: Any) -> dict[str, Any]:
    return {"best_step": step, "w": torch.tensor([float(step)]), **more}


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    folder(tmp_path).save(state(3, text="a", nested=[{"x": 1.5}]), best_weights=WEIGHTS)
    loaded = folder(tmp_path).load()
    assert loaded is not None
    assert torch.equal(loaded.pop("w"), torch.tensor([3.0]))
    assert loaded == {"best_step": 3, "text": "a", "nested": [{"x": 1.5}]}
    assert torch.equal(folder(tmp_path).load_best()["w"], WEIGHTS["w"])


def test_an_empty_folder_holds_nothing(tmp_path: Path) -> None:
    assert folder(tmp_path).load() is None


def test_a_full_disk_is_one_line_and_keeps_the_old_checkpoint(tmp_path: Path) -> None:
    folder(tmp_path).save(state(1), best_weights=WEIGHTS)
    kept = (tmp_path / CHECKPOINT_FILE).read_bytes()
    too_large = {"w": torch.zeros(20_000)}
    with largest_file(40_000), pytest.raises(StorageError, match=r"cannot write .* free space or choose") as caught:
        folder(tmp_path).save(state(2) | too_large, best_weights=None)
    assert "\n" not in str(caught.value)
    assert (tmp_path / CHECKPOINT_FILE).read_bytes() == kept
    assert sorted(path.name for path in tmp_path.iterdir()) == [BEST_FILE, CHECKPOINT_FILE]


def test_best_weights_wait_for_the_checkpoint_that_names_them(tmp_path: Path) -> None:
    folder(tmp_path).save(state(1), best_weights=WEIGHTS)
    with largest_file(40_000), pytest.raises(StorageError):
        folder(tmp_path).save(state(2) | {"w": torch.zeros(20_000)}, best_weights={"w": torch.tensor([9.0, 9.0])})
    after_crash = folder(tmp_path)
    loaded = after_crash.load()
    assert loaded is not None
    assert loaded["best_step"] == 1
    assert torch.equal(after_crash.load_best()["w"], WEIGHTS["w"])


def test_a_crash_before_the_last_move_is_completed_on_opening(tmp_path: Path) -> None:
    folder(tmp_path).save(state(5), best_weights=WEIGHTS)
    (tmp_path / BEST_FILE).rename(tmp_path / "best-5.safetensors")
    after_crash = folder(tmp_path)
    assert after_crash.load() is not None
    assert torch.equal(after_crash.load_best()["w"], WEIGHTS["w"])


@pytest.mark.parametrize(("fingerprint", "data", "word"), [("other", "data", "trial"), ("trial", "other", "data")])
def test_another_trial_or_data_set_is_refused(fingerprint: str, data: str, word: str, tmp_path: Path) -> None:
    folder(tmp_path).save(state(1), best_weights=None)
    with pytest.raises(StorageError, match=f"its {word} fingerprint is {word}, this one is other"):
        folder(tmp_path, fingerprint, data).load()


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("/nonexistent/never"),)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol:UserWarning")
def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    torch.save({"state": _Evil()}, tmp_path / CHECKPOINT_FILE)
    with pytest.raises(StorageError, match="damaged checkpoint"):
        folder(tmp_path).load()
    (tmp_path / CHECKPOINT_FILE).write_bytes(pickle.dumps(_Evil()))
    with pytest.raises(StorageError, match="damaged checkpoint"):
        folder(tmp_path).load()


def test_missing_best_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"best.safetensors: cannot read the best weights"):
        folder(tmp_path).load_best()
