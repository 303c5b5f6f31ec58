from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from full_disk import largest_file
from refusals import refused
from torch import Tensor

from vsetune.errors import DamagedCheckpoint, StorageError
from vsetune.records.studies import BEST_FILE
from vsetune.training.checkpoint import CHECKPOINT_FILE, CheckpointFolder, seal_of
from vsetune.training.executions import EXECUTIONS_FILE

WEIGHTS = {"w": torch.tensor([1.0, 2.0])}


def folder(path: Path, fingerprint: str = "trial", data: str = "data") -> CheckpointFolder:
    return CheckpointFolder(path, fingerprint=fingerprint, data=data)


def state(step: int, **more: Any) -> dict[str, Any]:
    return {"best_step": step, "w": torch.tensor([float(step)]), **more}


def saved(path: Path, step: int, weights: dict[str, Tensor] = WEIGHTS, **more: Any) -> CheckpointFolder:
    """As an attempt leaves it after a validation that is the best so far."""
    kept = folder(path)
    kept.load()
    kept.keep_best(weights, step=step)
    kept.save(state(step, **more))
    return kept


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    saved(tmp_path, 3, text="a", nested=[{"x": 1.5}])
    loaded = folder(tmp_path).load()
    assert loaded is not None
    assert torch.equal(loaded.pop("w"), torch.tensor([3.0]))
    assert loaded == {"best_step": 3, "text": "a", "nested": [{"x": 1.5}]}
    assert torch.equal(folder(tmp_path).load_best()["w"], WEIGHTS["w"])


def test_an_empty_folder_holds_nothing(tmp_path: Path) -> None:
    assert folder(tmp_path).load() is None


def test_a_full_disk_is_one_line_and_keeps_the_old_checkpoint(tmp_path: Path) -> None:
    kept = saved(tmp_path, 1)
    before = (tmp_path / CHECKPOINT_FILE).read_bytes()
    too_large = {"w": torch.zeros(20_000)}
    with largest_file(40_000), pytest.raises(StorageError) as caught:
        kept.save(state(1) | too_large)
    assert "\n" not in str(caught.value)
    assert (tmp_path / CHECKPOINT_FILE).read_bytes() == before
    assert names(tmp_path) == [BEST_FILE, CHECKPOINT_FILE]


def best_after_a_crash(path: Path) -> tuple[int, list[float]]:
    """(best step of the checkpoint, best weights) as the next attempt opens the folder."""
    opened = folder(path)
    loaded = opened.load()
    assert loaded is not None
    assert names(path) == [BEST_FILE, CHECKPOINT_FILE]
    return loaded["best_step"], opened.load_best()["w"].tolist()


BETTER = {"w": torch.tensor([9.0, 9.0])}


def test_best_weights_that_no_checkpoint_names_go_with_a_crash(tmp_path: Path) -> None:
    kept = saved(tmp_path, 1)
    for step in (2, 3):
        kept.keep_best({"w": torch.full((2,), float(step))}, step=step)
        assert kept.load_best()["w"].tolist() == [step, step]  # whoever looks meanwhile sees the best so far
    assert best_after_a_crash(tmp_path) == (1, [1.0, 2.0])


def test_the_next_checkpoint_names_the_best_weights_of_validations_without_one(tmp_path: Path) -> None:
    kept = saved(tmp_path, 1)
    kept.keep_best(BETTER, step=2)
    kept.save(state(2) | {"w": torch.zeros(3)})
    assert names(tmp_path) == [BEST_FILE, CHECKPOINT_FILE]
    assert best_after_a_crash(tmp_path) == (2, [9.0, 9.0])


def test_a_checkpoint_that_cannot_be_written_leaves_the_last_one_with_its_best_weights(tmp_path: Path) -> None:
    kept = saved(tmp_path, 1)
    kept.keep_best(BETTER, step=2)
    with largest_file(40_000), pytest.raises(StorageError):
        kept.save(state(2) | {"w": torch.zeros(20_000)})
    assert best_after_a_crash(tmp_path) == (1, [1.0, 2.0])


def test_best_weights_that_cannot_be_written_leave_those_before(tmp_path: Path) -> None:
    kept = saved(tmp_path, 1)
    with largest_file(4_000), pytest.raises(StorageError):
        kept.keep_best({"w": torch.zeros(20_000)}, step=2)
    assert (tmp_path / BEST_FILE).exists()
    assert best_after_a_crash(tmp_path) == (1, [1.0, 2.0])


@pytest.mark.parametrize("harm", [
    Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1]), lambda path: path.write_bytes(b""),
    lambda path: (path.unlink(), os.mkfifo(path)),
], ids=["removed", "cut", "empty", "pipe"])
def test_a_checkpoint_brings_its_best_weights_with_it(harm: Callable[[Path], Any], tmp_path: Path) -> None:
    saved(tmp_path, 1)
    harm(tmp_path / BEST_FILE)
    assert best_after_a_crash(tmp_path) == (1, [1.0, 2.0])


def without_its_copy(path: Path) -> None:
    """The checkpoint as earlier versions wrote it."""
    plain = torch.load(path / CHECKPOINT_FILE, weights_only=True)
    del plain["best"]
    stream = io.BytesIO()
    torch.save(plain, stream)
    (path / CHECKPOINT_FILE).write_bytes(stream.getvalue() + seal_of(stream.getvalue()))


@pytest.mark.parametrize("best", ["as named", "newer", "gone"])
def test_a_checkpoint_of_an_earlier_version_goes_on_with_the_best_weights_it_names(best: str, tmp_path: Path) -> None:
    kept = saved(tmp_path, 1)
    without_its_copy(tmp_path)
    if best != "as named":
        (tmp_path / "checkpoint-best.safetensors").write_bytes((tmp_path / BEST_FILE).read_bytes())
        (tmp_path / BEST_FILE).unlink()
    if best == "newer":
        kept.keep_best(BETTER, step=2)
    assert best_after_a_crash(tmp_path) == (1, [1.0, 2.0])


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(b"changed")], ids=["gone", "changed"])
def test_a_checkpoint_of_an_earlier_version_without_its_best_weights_is_damaged(
    harm: Callable[[Path], Any], tmp_path: Path
) -> None:
    saved(tmp_path, 1)
    without_its_copy(tmp_path)
    harm(tmp_path / BEST_FILE)
    with refused("VSE-T010", by=DamagedCheckpoint, file=tmp_path / BEST_FILE):
        folder(tmp_path).load()


@pytest.mark.parametrize("copy", [torch.zeros(3, dtype=torch.bfloat16), torch.zeros(3, dtype=torch.uint8), "weights"])
def test_a_copy_of_other_weights_is_damage(copy: Any, tmp_path: Path) -> None:
    saved(tmp_path, 1)
    plain = torch.load(tmp_path / CHECKPOINT_FILE, weights_only=True)
    stream = io.BytesIO()
    torch.save(plain | {"best": copy}, stream)
    (tmp_path / CHECKPOINT_FILE).write_bytes(stream.getvalue() + seal_of(stream.getvalue()))
    (tmp_path / BEST_FILE).unlink()
    with refused("VSE-T010", by=DamagedCheckpoint, file=tmp_path / BEST_FILE):
        folder(tmp_path).load()


def test_best_weights_that_somebody_removed_are_written_anew(tmp_path: Path) -> None:
    kept = saved(tmp_path, 1)
    (tmp_path / BEST_FILE).unlink()
    kept.keep_best(BETTER, step=2)
    kept.save(state(2))
    assert best_after_a_crash(tmp_path) == (2, [9.0, 9.0])


def test_a_sound_checkpoint_stays_with_its_best_weights_when_the_count_of_executions_is_damaged(tmp_path: Path) -> None:
    saved(tmp_path, 1).keep_best(BETTER, step=2)
    (tmp_path / EXECUTIONS_FILE).write_text("{")
    folder(tmp_path).set_aside("damaged")
    (tmp_path / f"{EXECUTIONS_FILE}.damaged-1").unlink()
    assert best_after_a_crash(tmp_path) == (1, [1.0, 2.0])


@pytest.mark.parametrize(("fingerprint", "data", "word"), [("other", "data", "trial"), ("trial", "other", "data")])
def test_another_trial_or_data_set_is_refused(fingerprint: str, data: str, word: str, tmp_path: Path) -> None:
    saved(tmp_path, 1)
    with refused("VSE-T012", by=StorageError, what=f"{word} fingerprint", got=word, need="other"):
        folder(tmp_path, fingerprint, data).load()


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("/nonexistent/never"),)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol:UserWarning")
def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    stream = io.BytesIO()
    torch.save({"state": _Evil()}, stream)
    for content in (stream.getvalue(), pickle.dumps(_Evil())):
        (tmp_path / CHECKPOINT_FILE).write_bytes(content + seal_of(content))
        with refused("VSE-T010", by=StorageError):
            folder(tmp_path).load()


def test_missing_best_weights_are_named(tmp_path: Path) -> None:
    with refused("VSE-T010", by=StorageError, file=tmp_path / BEST_FILE):
        folder(tmp_path).load_best()
