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
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch
from reader_throughput import wide_scenes

from chaos.processes import Processes
from chaos.servers import BUCKET, s3_server
from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.reader import training_batches
from vsetune.data.stored.dataset import Dataset
from vsetune.home import s3
from vsetune.home.addresses import join
from vsetune.home.node_cache import FOLDER_VARIABLE, SIZE_VARIABLE
from vsetune.training.batches import TrainingBatches
from vsetune.training.step import Learner

THREADS, ROUNDS = 2, 3
LOCAL, FIRST, LATER, UNCACHED = "local", "S3, first epoch", "S3, later epoch", "S3, no cache"


@dataclass(frozen=True)
class Epoch:
    """Of one epoch: pairs per second, and seconds from opening the data set to the end of the first step; by the clock
    and by this process's own time, which other work on the machine hardly moves (but which does not see waiting).
    """

    rate: float
    start_s: float
    own_rate: float
    own_start_s: float
    requests: int


class Watch:
    """Both clocks, from when it is made."""

    def __init__(self) -> None:
        self._begin = time.perf_counter(), time.process_time()

    def seconds(self) -> tuple[float, float]:
        return time.perf_counter() - self._begin[0], time.process_time() - self._begin[1]


Run = Callable[[str, int], tuple[int, tuple[float, float], tuple[float, float]]]
"""Of an address and the number of an epoch: pairs, and both clocks at the end of the first step and of the epoch."""


def main(folder: str | None, rounds: int, steps: int | None) -> None:
    torch.set_num_threads(THREADS)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        os.environ["VSETUNE_HOME"], os.environ[FOLDER_VARIABLE] = str(place / "home"), str(place / "cache")
        local = folder or wide_scenes(place / "scenes")
        with s3_copy(local, place) as remote:
            read_epoch(local, 0)  # the first of all fills the page cache
            trained = in_turn(rounds, place / "cache", local, remote, partial(train_epoch, most=steps))
            show("VSE++", trained)
            show("reader alone", in_turn(rounds, place / "cache", local, remote, read_epoch))
            os.environ[SIZE_VARIABLE] = "0"
            requests = counted()
            pairs, _, end = read_epoch(remote, 0)
            print(f"{'':14}{UNCACHED:18}{pairs / end[0]:8,.0f} pairs/s; {len(requests)} requests")


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


def in_turn(rounds: int, cache: Path, local: str, remote: str, run: Run) -> dict[str, list[Epoch]]:
    """Each kind of epoch once per round, beginning with another one each time."""
    found: dict[str, list[Epoch]] = {LOCAL: [], FIRST: [], LATER: []}
    for number in range(rounds):
        for kinds in ([LOCAL], [FIRST, LATER]) if number % 2 == 0 else ([FIRST, LATER], [LOCAL]):
            for kind in kinds:
                if kind == FIRST:
                    shutil.rmtree(cache, ignore_errors=True)
                requests = counted()
                pairs, start, end = run(local if kind == LOCAL else remote, int(kind == LATER))
                found[kind].append(Epoch(pairs / end[0], start[0], pairs / end[1], start[1], len(requests)))
    return found


def train_epoch(address: str, epoch: int, *, most: int | None) -> tuple[int, tuple[float, float], tuple[float, float]]:
    """One epoch of VSE++, as an attempt trains it. most: steps."""
    trial = TrialSpec.model_validate({
        "study": "benchmark", "trial": "t", "cell": "vsepp.lmh", "seed": 0, "data": {"path": address},
        "network": {"name": "vsepp", "embedding_size": 512}, "loss": {"name": "lmh"}, "training": {},
    })
    watch = Watch()
    dataset = Dataset.open(address)
    batches = TrainingBatches(trial, dataset, torch.device("cpu"))
    learner = Learner.build(trial, dataset, torch.device("cpu"))
    first = epoch * batches.steps_per_epoch
    learner.step(batches.take(first))
    start, pairs = watch.seconds(), trial.training.batch_size
    for step in range(first + 1, first + min(batches.steps_per_epoch, most or batches.steps_per_epoch)):
        batch = batches.take(step)
        learner.step(batch)
        pairs += batch.pairs
    end = watch.seconds()
    batches.close()
    return pairs, start, end


def read_epoch(address: str, epoch: int) -> tuple[int, tuple[float, float], tuple[float, float]]:
    """The same of the reader alone; its first batch stands for the first step."""
    watch, pairs, start = Watch(), 0, (0.0, 0.0)
    for batch in training_batches(
        Dataset.open(address), "train", batch_size=128, batch_unit="pairs", seed=0, epoch=epoch, shuffle_pairs=10_000
    ):
        start = start if pairs else watch.seconds()
        pairs += batch.pairs
    return pairs, start, watch.seconds()


_sent: list[str] = []


def counted() -> list[str]:
    """The list that takes the name of every request sent to S3; empty now."""
    s3._client().meta.events.register("before-send.s3", _count, unique_id="streaming")
    _sent.clear()
    return _sent


def _count(event_name: str, **_: object) -> None:
    _sent.append(event_name)


def show(what: str, found: dict[str, list[Epoch]]) -> None:
    """One line per kind of epoch: the median rate, its ratios to the local epoch of the same round, requests, start."""
    for kind, epochs in found.items():
        by_clock = [epoch.rate / local.rate for epoch, local in zip(epochs, found[LOCAL], strict=True)]
        by_own = [epoch.own_rate / local.own_rate for epoch, local in zip(epochs, found[LOCAL], strict=True)]
        print(
            f"{what:14}{kind:18}{median(epoch.rate for epoch in epochs):8,.0f} pairs/s, ratios {listed(by_clock)}; "
            f"{median(epoch.own_rate for epoch in epochs):,.0f} per second of its own, ratios {listed(by_own)}; "
            f"{max(epoch.requests for epoch in epochs)} requests; first step after "
            f"{median(epoch.start_s for epoch in epochs):.2f} s ({median(epoch.own_start_s for epoch in epochs):.2f})",
            flush=True,
        )
        what = ""


def listed(ratios: Sequence[float]) -> str:
    return f"{median(ratios):.3f} (" + " ".join(f"{ratio:.3f}" for ratio in ratios) + ")"


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    main(given.get(1), int(given.get(2, ROUNDS)), int(given[3]) if 3 in given else None)
