from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from equal_batches import assert_equal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mock_bucket import bucket
from refusals import refused

from vsetune.config.sources.trial_inputs import STREAMED, NetworkReads, PixelInput, Reading, TextModel
from vsetune.data.batches.bank_arrays import DeviceArrays
from vsetune.data.batches.bank_batches import BankRows, bank_rows
from vsetune.data.batches.reader import evaluation_batches, training_batches
from vsetune.data.captions.parses import parse_dataset
from vsetune.data.progress import SilentProgress
from vsetune.data.stored import banks
from vsetune.data.stored.banks import bank_of, forget_banks
from vsetune.data.stored.dataset import Dataset, wrong_hash
from vsetune.errors import StorageError
from vsetune.home.node_cache import FOLDER_VARIABLE

__all__ = ["bucket"]

CPU = torch.device("cpu")
AUTO = Reading("auto", bank_bytes=10**9)
OPTIONS = {"batch_size": 4, "batch_unit": "pairs", "seed": 1, "epoch": 0, "shuffle_pairs": 8}
EVERYTHING = NetworkReads(boxes=True, dependencies=True, siblings=True, phrases=True)


@pytest.fixture(autouse=True)
def _nothing_open() -> None:
    forget_banks()


def rows_of(dataset: Dataset, reads: NetworkReads = EVERYTHING, semantics: np.ndarray | None = None) -> BankRows:
    rows = bank_rows(replace(dataset, reading=AUTO), "train", reads, device=CPU, semantics=semantics)
    assert rows is not None
    return rows


def on_a_device(rows: BankRows, semantics: np.ndarray | None) -> BankRows:
    """As on a GPU: the arrays are tensors, batches are built from them alone."""
    return BankRows(rows.bank, DeviceArrays(rows.bank, semantics, CPU))


def arrays_of(home: Path) -> Path:
    (path,) = (home / "cache" / "shards" / "banks").glob("*.arrays")
    return path


@pytest.fixture
def home() -> Path:
    return Path(os.environ["VSETUNE_HOME"])


@pytest.fixture
def rich(tiny, chain, npy) -> Dataset:
    """23 images of one to three captions and one or three regions, with boxes, parses and phrases, in five shards."""

    def edit(index: int, members: dict[str, bytes]) -> None:
        regions = (3, 1)[index % 2]
        members["boxes.npy"] = npy(np.full((regions, 4), index / 100), dtype="float32")
        members["features.npy"] = npy(np.random.default_rng(index).normal(size=(regions, 3)))

    dataset = tiny(23, regions=(3, 1), boxes=True, edit=edit).write()
    parse_dataset(dataset.path, "chain", phrases=True, progress=SilentProgress())
    return dataset


COMBINATIONS = st.fixed_dictionaries({
    "batch_size": st.integers(1, 60), "batch_unit": st.sampled_from(["pairs", "images"]),
    "seed": st.integers(0, 3), "epoch": st.integers(-2, 3), "shuffle_pairs": st.integers(1, 60),
    "skip_batches": st.integers(0, 12), "drop_last": st.booleans(),
})


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=COMBINATIONS, asks=st.lists(st.booleans(), min_size=5, max_size=5))
def test_batches_of_a_bank_are_those_of_the_shards_bit_for_bit(rich, options, asks):
    reads = NetworkReads(boxes=asks[0], dependencies=asks[1], siblings=asks[2], phrases=asks[3])
    vectors = np.random.default_rng(0).normal(size=(rich.split("train").captions, 4)) if asks[4] else None
    rows = rows_of(rich, reads, vectors)
    streamed = list(training_batches(rich, "train", **options, reads=reads, semantics=vectors))
    for place in (rows, on_a_device(rows, vectors)):
        gathered = list(training_batches(rich, "train", **options, reads=reads, semantics=vectors, rows=place))
        assert_equal(streamed, gathered)


@pytest.mark.parametrize("images", [None, [0, 3, 4, 5, 22]])
@pytest.mark.parametrize("for_masking", [False, True])
def test_evaluation_batches_of_a_bank_are_those_of_the_shards(rich, images, for_masking):
    options = {"batch_size": 4, "reads": EVERYTHING, "images": images, "for_masking": for_masking}
    for rows in (rows_of(rich), on_a_device(rows_of(rich), None)):
        streamed = evaluation_batches(rich, "train", **options)
        assert_equal(streamed, evaluation_batches(rich, "train", **options, rows=rows))


@pytest.mark.parametrize("unit", ["pairs", "images"])
def test_word_pieces_phrases_and_siblings_of_a_bank_are_those_of_the_shards(rich, saved, unit):
    reads = NetworkReads(word_pieces=TextModel(str(saved)), phrases=True, siblings=True)
    rows = rows_of(rich, reads)
    streamed = training_batches(rich, "train", **OPTIONS | {"batch_unit": unit}, reads=reads)
    gathered = training_batches(rich, "train", **OPTIONS | {"batch_unit": unit}, reads=reads, rows=rows)
    assert_equal(streamed, gathered)


def test_a_batch_that_is_kept_stays_as_it_was_when_others_are_made(rich):
    epochs = [list(training_batches(rich, "train", **OPTIONS, rows=rows_of(rich))) for _ in range(2)]
    assert_equal(*epochs)


def test_a_bank_is_made_once_and_found_by_the_next_process(rich, home, monkeypatch):
    rows_of(rich)
    forget_banks()
    monkeypatch.setattr(banks, "write_bank", lambda *_: pytest.fail("made again"))
    assert_equal(*(training_batches(rich, "train", **OPTIONS, rows=rows) for rows in (None, rows_of(rich))))


def _ask(dataset: Dataset, begin, made) -> None:
    begin.wait()
    bank = bank_of(dataset, "train")
    made.put(None if bank is None else os.fstat(bank.descriptor).st_ino)


def test_of_processes_that_ask_at_once_one_makes_the_bank_and_all_have_it(rich):
    context = multiprocessing.get_context("fork")
    begin, made = context.Event(), context.Queue()
    processes = [context.Process(target=_ask, args=(replace(rich, reading=AUTO), begin, made)) for _ in range(3)]
    for process in processes:
        process.start()
    begin.set()
    found = [made.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert None not in found
    assert len(set(found)) == 1


def cut(arrays: Path) -> None:
    os.truncate(arrays, arrays.stat().st_size - 1)


def flip(arrays: Path) -> None:
    content = bytearray(arrays.read_bytes())
    content[5] ^= 1
    arrays.write_bytes(content)


def half_written(arrays: Path) -> None:
    arrays.with_suffix(".json").unlink()
    flip(arrays)


def with_another_list(arrays: Path) -> None:
    arrays.with_suffix(".json").write_text('{"shape": {"images": 3}, "sha256": 4}')


def removed(arrays: Path) -> None:
    shutil.rmtree(arrays.parent)


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("damage", [cut, flip, half_written, with_another_list, removed])
def test_a_damaged_bank_is_made_again(rich, home, damage: Callable[[Path], None], is_open):
    before = list(evaluation_batches(rich, "train", batch_size=100, rows=rows_of(rich)))
    damage(arrays_of(home))
    if not is_open:
        forget_banks()
    assert_equal(before, evaluation_batches(rich, "train", batch_size=100, rows=rows_of(rich)))
    assert arrays_of(home).stat().st_size == rows_of(rich).bank.shape.bytes


def test_a_bank_of_before_a_restart_of_the_machine_is_used_when_its_content_is_right(rich, home, monkeypatch):
    rows_of(rich)
    os.utime(arrays_of(home))
    forget_banks()
    monkeypatch.setattr(banks, "write_bank", lambda *_: pytest.fail("made again"))
    rows_of(rich)


def changed_between_members(shard: Path) -> bytes:
    """With one bit of the filling behind a member changed, so that every sample is sound."""
    content = bytearray(shard.read_bytes())
    with tarfile.open(shard) as archive:
        member = next(each for each in archive if each.size % 512)
    content[member.offset_data + member.size] ^= 1
    return bytes(content)


def test_a_shard_that_was_changed_since_it_was_ingested_is_told_when_the_bank_is_made(rich, home):
    shard = Path(rich.path) / rich.split("train").shards[2].file
    shard.write_bytes(changed_between_members(shard))
    with refused("VSE-D026", reason=wrong_hash()):
        rows_of(rich)
    assert not list((home / "cache").rglob("*.arrays"))


def test_a_bank_of_shards_that_this_node_does_not_keep_is_not_made_of_changed_ones(rich, home, bucket, monkeypatch):
    monkeypatch.setenv("VSETUNE_NODE_CACHE_GB", "0")
    for path in Path(rich.path).iterdir():
        bucket.upload_file(str(path), "data", f"rich/{path.name}")
    remote = replace(Dataset.open("s3://data/rich"), reading=AUTO)
    shard = remote.split("train").shards[2]
    bucket.put_object(
        Bucket="data", Key=f"rich/{shard.file}", Body=changed_between_members(Path(rich.path) / shard.file)
    )
    with refused("VSE-D026", reason=wrong_hash()):
        bank_of(remote, "train")
    assert not list(home.rglob("*.arrays"))


def test_a_bank_that_is_written_to_while_it_is_read_gives_no_batch(rich, home):
    bank = bank_of(replace(rich, reading=AUTO), "train")
    into = np.empty((2, bank.shape.regions, bank.shape.width), np.float16)
    bank.read_features(np.arange(2), into)
    with arrays_of(home).open("r+b") as file:
        file.write(bytes(8))
    with refused("VSE-D005", by=StorageError, file=bank.path):
        bank.read_features(np.arange(2), into)


def test_what_another_process_is_still_writing_is_not_taken_for_a_bank(rich, home, monkeypatch):
    """The folder was removed, hence its locks; the other one then writes under the same name."""
    write_bank = banks.write_bank

    def replaced(dataset, split, file):
        made = write_bank(dataset, split, file)
        Path(file.name).unlink()
        Path(file.name).write_bytes(bytes(made[0].bytes))
        return made

    with monkeypatch.context() as patched:
        patched.setattr(banks, "write_bank", replaced)
        assert bank_of(replace(rich, reading=AUTO), "train") is None
    forget_banks()
    assert bank_of(replace(rich, reading=AUTO), "train").ids.any()


@pytest.mark.parametrize(
    ("reading", "reads"),
    [
        (STREAMED, NetworkReads()), (Reading("auto", 100), NetworkReads()),
        (AUTO, NetworkReads(pixels=PixelInput(size=6))),
    ],
)
def test_what_is_streamed_leaves_nothing_on_the_disk(rich, home, reading, reads):
    assert bank_rows(replace(rich, reading=reading), "train", reads, device=CPU) is None
    assert not list(home.rglob("*.arrays"))


def test_a_data_set_above_the_limit_is_streamed_and_the_log_says_so_once(rich, caplog):
    for _ in range(2):
        assert bank_of(replace(rich, reading=Reading("auto", 100)), "train") is None
    (line,) = caplog.messages
    assert line.startswith(f"{rich.path}: read from its shards, not from arrays on this node: resources.bank_gib ")


def test_asked_for_by_name_a_bank_needs_no_limit(rich):
    assert bank_of(replace(rich, reading=Reading("bank", 100)), "train") is not None


def test_a_full_disk_leaves_the_shards_one_line_and_no_file(rich, home, caplog):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # no file of this process may grow beyond it
    try:
        assert bank_of(replace(rich, reading=AUTO), "train") is None
        assert bank_of(replace(rich, reading=AUTO), "train") is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    (line,) = caplog.messages
    assert "takes nothing (File too large)" in line
    assert not [path for path in home.rglob("banks/*") if path.is_file()]


def test_a_folder_that_takes_nothing_leaves_the_shards(rich, home, caplog, monkeypatch):
    (home / "file").write_text("")
    monkeypatch.setenv(FOLDER_VARIABLE, str(home / "file"))
    assert bank_of(replace(rich, reading=AUTO), "train") is None
    assert "takes nothing (Not a directory)" in caplog.text


def test_what_nobody_opened_lately_makes_room_and_what_is_in_use_stays(tiny):
    kept = []
    for number in range(4):
        data = tiny([[f"{number} a dog", "a cat"]] * 40)
        data.folder = data.folder.with_name(f"data-{number}")
        dataset = data.write()
        limit = 2 * banks.bytes_of(dataset, dataset.split("train"))
        kept.append(bank_of(replace(dataset, reading=Reading("auto", limit)), "train"))
        if number == 0:
            os.utime(kept[0].path, ns=(0, kept[0].path.stat().st_mtime_ns))  # not opened since 1970
    assert [bank is not None and bank.path.exists() for bank in kept] == [False, True, True, False]


def test_half_written_banks_of_killed_processes_are_removed_with_the_next_one(rich, home):
    folder = home / "cache" / "shards" / "banks"
    folder.mkdir(parents=True)
    (folder / "0123456789abcdef.arrays.partial").write_bytes(bytes(1000))
    rows_of(rich)
    assert not list(folder.glob("*.partial"))


def test_epochs_and_data_sets_take_turns_without_leaving_files_open(rich):
    rows_of(rich)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        forget_banks()
        rows_of(rich)
    assert len(os.listdir("/proc/self/fd")) <= before + 1
