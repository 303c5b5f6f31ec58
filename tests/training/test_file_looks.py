"""How often the files of a data set are looked at: each shard once when it is opened for training, then once a reading.

Counted are the calls that ask a file system about a path; on a shared one of a cluster each is a request.
"""

from __future__ import annotations

import builtins
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chained_words import Chain, chain, parse_by_chain
from trained_here import CPU, open_attempt

from vsetune.data.stored.array_cache import forget_arrays
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import DataError
from vsetune.networks.gsmn.spec import GsmnSpec
from vsetune.training.batches import TrainingBatches

__all__ = ["chain"]

TRAIN = {f"train-{number:06d}.tar": 1 for number in range(3)}
VALIDATION = {f"validation-{number:06d}.tar": 1 for number in range(2)}
TEST = {f"test-{number:06d}.tar": 1 for number in range(2)}


class Looks:
    """Calls on files in a folder, by name, since the last `taken`. opened: of them, those that opened the file."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._opened: Counter[str] = Counter()
        self._all: Counter[str] = Counter()

    def watched(self, call: Callable[..., Any], *, opens: bool) -> Callable[..., Any]:
        def counted(path: Any, *given: Any, **named: Any) -> Any:
            if isinstance(path, str | Path) and Path(path).parent == self._folder:
                self._all[Path(path).name] += 1
                self._opened[Path(path).name] += opens
            return call(path, *given, **named)

        return counted

    def taken(self) -> tuple[int, dict[str, int]]:
        """(calls of any kind, {file: times it was opened})."""
        found = self._all.total(), {name: times for name, times in self._opened.items() if times}
        self._all.clear()
        self._opened.clear()
        return found


@pytest.fixture
def looks(data_path: str, monkeypatch: pytest.MonkeyPatch) -> Looks:
    return watch(data_path, monkeypatch)


def watch(folder: str, monkeypatch: pytest.MonkeyPatch) -> Looks:
    looks = Looks(folder)
    for owner, name in ((os, "stat"), (os, "lstat"), (os, "readlink"), (os, "open"), (builtins, "open")):
        monkeypatch.setattr(owner, name, looks.watched(getattr(owner, name), opens=name == "open"))
    return looks


def epoch(batches: TrainingBatches, number: int) -> None:
    for step in range(batches.steps_per_epoch):
        batches.take(number * batches.steps_per_epoch + step)


def test_an_opened_data_set_answers_without_looking(data_path: str, looks: Looks) -> None:
    dataset = Dataset.open(data_path)
    looks.taken()
    (shard, *_) = dataset.split("train").shards
    _ = dataset.fingerprint, dataset.regions, dataset.width, dataset.shard_url(shard)
    assert looks.taken() == (0, {})


def test_an_epoch_opens_each_shard_once(make_trial: Any, data_path: str, looks: Looks) -> None:
    dataset = Dataset.open(data_path)
    looks.taken()
    batches = TrainingBatches(make_trial(), dataset, CPU)
    assert looks.taken() == (0, {})
    for number in range(2):
        epoch(batches, number)
        calls, opened = looks.taken()
        assert opened == TRAIN
        assert calls == 2 * len(TRAIN)  # that none is a link out of the folder, and the opening itself
    batches.close()


def test_parses_are_opened_once_for_all_epochs(
    make_trial: Any, data_path: str, tmp_path: Path, chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied(data_path, tmp_path)
    parse_by_chain(str(path))
    trial = make_trial(data={"path": str(path)}).model_copy(update={"network": GsmnSpec(text_graph="sparse")})
    forget_arrays()  # what an earlier trial of this process has opened
    looks = watch(trial.data.path, monkeypatch)
    batches = TrainingBatches(trial, Dataset.open(trial.data.path), CPU)
    looks.taken()
    epoch(batches, 0)
    opened = looks.taken()[1]
    assert opened.pop("parses.json") == 1
    assert {name.partition("-")[0] for name in opened} == {"train", "parses"}
    epoch(batches, 1)
    assert looks.taken()[1] == TRAIN
    batches.close()


def test_an_attempt_checks_each_shard_once_and_a_validation_opens_its_own(
    make_trial: Any, tmp_path: Path, looks: Looks
) -> None:
    attempt = open_attempt(make_trial(epochs=2), tmp_path / "attempt")
    assert looks.taken()[1] == {"manifest.json": 1, "vocabulary.json": 1, **TRAIN, **VALIDATION, **TEST}
    attempt.protocol()
    assert looks.taken() == (0, {})
    attempt.advance()
    assert looks.taken()[1] == TRAIN | VALIDATION
    attempt.close()


def test_a_shard_that_goes_while_a_trial_trains_and_a_test_shard_that_is_gone_before_are_named(
    make_trial: Any, data_path: str, tmp_path: Path
) -> None:
    path = copied(data_path, tmp_path)
    trial = make_trial(data={"path": str(path)})
    batches = TrainingBatches(trial, Dataset.open(str(path)), CPU)
    (path / "train-000001.tar").rename(path / "gone")
    with pytest.raises(DataError, match=r"train-000001\.tar"):
        epoch(batches, 0)
    (path / "gone").rename(path / "train-000001.tar")
    (path / "test-000001.tar").unlink()
    with pytest.raises(DataError, match=r"test-000001\.tar"):
        open_attempt(trial, tmp_path / "attempt")


def copied(data_path: str, into: Path) -> Path:
    folder = into / "data"
    folder.mkdir()
    for file in Path(data_path).iterdir():
        if file.suffix in {".tar", ".json"}:
            (folder / file.name).write_bytes(file.read_bytes())
    return folder
