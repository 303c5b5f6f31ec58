"""How fast VSE++ trains from S3 with the node cache against a local folder, on one machine and in one run.

    python benchmarks/streaming.py [FOLDER] [ROUNDS] [STEPS]

FOLDER: an ingested data set, such as Flickr8k (`vsetune data ingest studies/data/flickr8k.yaml`); without one, scenes
with features of its shape (36 regions x 1280) are made. It is uploaded to a seaweedfs server started here; needs the
extra `chaos`. Each round trains an epoch from the folder, one from S3 with an empty cache and the next one with the
filled cache, in turn, so that what else the machine does meets all three; two threads, D = 512. Then the reader runs
alone. Flickr8k on two cores: about 4 minutes a round; expect a first epoch of at least 80 %, later ones of 98 % of the
local rate, one request per shard, and 5 s from opening the data set to the end of the first step. STEPS ends every
trained epoch early, for a machine that is busy: the first epoch then looks worse than it is, for its downloads are at
its beginning.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from reader_throughput import wide_scenes

from chaos.processes import Processes
from chaos.servers import BUCKET, s3_server
from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.reader import training_batches
from vsetune.data.stored.dataset import Dataset
from vsetune.object_storage import s3
from vsetune.object_storage.addresses import join
from vsetune.object_storage.node_cache import FOLDER_VARIABLE, SIZE_VARIABLE
from vsetune.training.batches import TrainingBatches
from vsetune.training.step import Learner

THREADS, ROUNDS = 2, 3
LOCAL, FIRST, LATER, UNCACHED = "local", "S3, first epoch", "S3, later epoch", "S3, no cache"


@dataclass
class Measured:
    """Of one kind of epoch, per round. starts: seconds from opening the data set to the end of the first step."""

    rates: list[float] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)


def main(folder: str | None, rounds: int, steps: int | None) -> None:
    torch.set_num_threads(THREADS)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        os.environ["VSETUNE_HOME"], os.environ[FOLDER_VARIABLE] = str(place / "home"), str(place / "cache")
        local = folder or wide_scenes(place / "scenes")
        with s3_copy(local, place) as remote:
            read_epoch(Dataset.open(local), 0)  # the first of all fills the page cache
            trained = in_turn(rounds, place / "cache", local, remote, partial(train_epoch, most=steps))
            show("VSE++", trained)
            show("reader alone", in_turn(rounds, place / "cache", local, remote, read_epoch))
            os.environ[SIZE_VARIABLE] = "0"
            requests = counted()
            rate, _ = read_epoch(Dataset.open(remote), 0)
            print(f"{'':14}{UNCACHED:18}{rate:8,.0f} pairs/s  {len(requests)} requests")


@contextmanager
def s3_copy(folder: str, place: Path) -> Iterator[str]:
    """The prefix of a copy of the data set on a server of our own."""
    files = [path for path in Path(folder).iterdir() if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    server, environment = s3_server(place, Processes(), megabytes=2 * size // 2**20 + 512)
    os.environ.update(environment)
    with server.running():
        prefix = f"s3://{BUCKET}/data"
        for path in files:
            s3.upload(path, join(prefix, path.name))
        yield prefix


def in_turn(
    rounds: int, cache: Path, local: str, remote: str, run: Callable[[Dataset, int], tuple[float, float]]
) -> dict[str, Measured]:
    """Each kind of epoch once per round, beginning with another one each time."""
    found = {kind: Measured() for kind in (LOCAL, FIRST, LATER)}
    for number in range(rounds):
        for kinds in ([LOCAL], [FIRST, LATER]) if number % 2 == 0 else ([FIRST, LATER], [LOCAL]):
            for kind in kinds:
                if kind == FIRST:
                    shutil.rmtree(cache, ignore_errors=True)
                requests = counted()
                begin = time.perf_counter()
                dataset = Dataset.open(local if kind == LOCAL else remote)
                opened = time.perf_counter() - begin
                rate, start = run(dataset, int(kind == LATER))
                measured = found[kind]
                measured.rates.append(rate)
                measured.starts.append(opened + start)
                measured.requests.append(len(requests))
    return found


def train_epoch(dataset: Dataset, epoch: int, *, most: int | None) -> tuple[float, float]:
    """(pairs per second, seconds to the end of the first step) of one epoch of VSE++, as an attempt trains it.

    most: steps.
    """
    trial = TrialSpec.model_validate({
        "study": "benchmark", "trial": "t", "cell": "vsepp.lmh", "seed": 0, "data": {"path": dataset.path},
        "network": {"name": "vsepp", "embedding_size": 512}, "loss": {"name": "lmh"}, "training": {},
    })
    begin = time.perf_counter()
    batches = TrainingBatches(trial, dataset, torch.device("cpu"))
    learner = Learner.build(trial, dataset, torch.device("cpu"))
    first = epoch * batches.steps_per_epoch
    learner.step(batches.take(first))
    start = time.perf_counter() - begin
    pairs = trial.training.batch_size
    for step in range(first + 1, first + min(batches.steps_per_epoch, most or batches.steps_per_epoch)):
        batch = batches.take(step)
        learner.step(batch)
        pairs += batch.pairs
    seconds = time.perf_counter() - begin
    batches.close()
    return pairs / seconds, start


def read_epoch(dataset: Dataset, epoch: int) -> tuple[float, float]:
    """The same of the reader alone; its first batch stands for the first step."""
    begin, pairs, start = time.perf_counter(), 0, 0.0
    for batch in training_batches(
        dataset, "train", batch_size=128, batch_unit="pairs", seed=0, epoch=epoch, shuffle_pairs=10_000
    ):
        start = start or time.perf_counter() - begin
        pairs += batch.pairs
    return pairs / (time.perf_counter() - begin), start


_sent: list[str] = []


def counted() -> list[str]:
    """The list that takes the name of every request sent to S3; empty now."""
    s3._client().meta.events.register("before-send.s3", _count, unique_id="streaming")
    _sent.clear()
    return _sent


def _count(event_name: str, **_: object) -> None:
    _sent.append(event_name)


def show(what: str, found: dict[str, Measured]) -> None:
    """One line per kind of epoch: the median rate, its ratio to the local epoch of the same round, requests, start."""
    local = found[LOCAL].rates
    for kind, measured in found.items():
        ratios = [rate / ours for rate, ours in zip(measured.rates, local, strict=True)]
        shown = " ".join(f"{ratio:.3f}" for ratio in ratios)
        print(
            f"{what:14}{kind:18}{statistics.median(measured.rates):8,.0f} pairs/s  "
            f"ratio {statistics.median(ratios):.3f} ({shown})  {max(measured.requests):3} requests  "
            f"first step after {statistics.median(measured.starts):.2f} s"
        )
        what = ""


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    main(given.get(1), int(given.get(2, ROUNDS)), int(given[3]) if 3 in given else None)
