"""How fast batches come from the shards and from the bank of a node, against how fast VSE++ consumes them.

    python benchmarks/reader_throughput.py [FOLDER] [ROUNDS]

FOLDER: an ingested data set; without one, scenes with features of Flickr8k's shape (36 regions x 1280) are made. Each
round reads an epoch from the shards and some from the bank, in turn; pairs per second of processor time, so that other
work on the machine counts as little as possible, are those of one core. Then VSE++ (D = 512) trains on batches already
in memory, with one thread. About a minute; expect at least 40,000 pairs per second and core from the bank.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median

import torch
from rich.console import Console

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.config.sources.trial_inputs import FEATURES_AND_WORDS, Reading
from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.bank_batches import BankRows, bank_rows
from vsetune.data.batches.reader import training_batches
from vsetune.data.making.ingest import ingest
from vsetune.data.stored.dataset import Dataset
from vsetune.data.terminal_progress import terminal_progress
from vsetune.training.step import Learner

BATCH, STEPS, REPEATS, ROUNDS = 128, 15, 2, 5
EPOCHS_FROM_BANK = 4
"""In a round: one is over before the clock has ticked often."""


def main(folder: str | None, rounds: int) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["VSETUNE_HOME"] = temporary
        dataset = Dataset.open(folder or wide_scenes(Path(temporary) / "scenes"))
        begin, working = time.perf_counter(), time.process_time()
        rows = bank_rows(
            replace(dataset, reading=Reading("bank")), "train", FEATURES_AND_WORDS, device=torch.device("cpu")
        )
        made, worked = time.perf_counter() - begin, time.process_time() - working
        assert rows is not None, "the disk of the temporary folder takes no bank"
        size = rows.bank.shape.bytes / 1e6
        print(f"bank made in {made:.2f} s ({worked:.2f} s of the processor): {size:,.0f} MB of "
              f"{dataset.split('train').images:,} images of {dataset.regions} x {dataset.width}")
        read_in_turn(dataset, rows, rounds)
        print(f"VSE++  {network_rate(dataset, rows):8,.0f} pairs/s per core (forward, backward, optimizer)")


def read_in_turn(dataset: Dataset, rows: BankRows, rounds: int) -> None:
    """Prints the medians of both, and of their ratio in each round."""
    shards, bank = [], []
    for number in range(rounds):
        kinds = [(shards, None, 1), (bank, rows, EPOCHS_FROM_BANK)]
        for rates, source, epochs in kinds if number % 2 == 0 else reversed(kinds):
            rates.append(reader_rate(dataset, source, range(number, number + epochs)))
    ratios = sorted(one / other for one, other in zip(bank, shards, strict=True))
    for name, rates in (("shards", shards), ("bank", bank)):
        print(f"{name:7}{median(rates):8,.0f} pairs/s per core ({min(rates):,.0f} to {max(rates):,.0f})")
    print(f"ratio bank / shards: {median(ratios):.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f})", flush=True)


def reader_rate(dataset: Dataset, rows: BankRows | None, epochs: range) -> float:
    """Pairs per second of processor time. rows: of the bank; None: from the shards."""
    pairs, begin = 0, time.process_time()
    for epoch in epochs:
        for batch in training_batches(
            dataset, "train", batch_size=BATCH, batch_unit="pairs", seed=0, epoch=epoch, shuffle_pairs=10_000, rows=rows
        ):
            pairs += batch.pairs
    return pairs / (time.process_time() - begin)


def wide_scenes(folder: Path) -> str:
    """Scenes whose features are as large as a CNN's."""
    recipe = IngestRecipe.model_validate({
        "name": "wide", "output": str(folder),
        "source": {"layout": "scenes", "train": 1000, "validation": 1, "test": 0},
        "features": {"extractor": "pixels", "grid": 6, "width": 1280},
    })
    with terminal_progress(Console(stderr=True)) as progress:
        ingest(recipe, progress=progress)
    return str(folder)


def network_rate(dataset: Dataset, rows: BankRows) -> float:
    """Pairs per second of processor time in training steps, the best of REPEATS."""
    trial = TrialSpec.model_validate({
        "study": "benchmark", "trial": "t", "cell": "vsepp.lmh", "seed": 0, "data": {"path": "benchmark"},
        "network": {"name": "vsepp", "embedding_size": 512}, "loss": {"name": "lmh"}, "training": {},
    })
    learner = Learner.build(trial, dataset, torch.device("cpu"))
    batches = training_batches(
        dataset, "train", batch_size=BATCH, batch_unit="pairs", seed=0, epoch=0, shuffle_pairs=10_000, rows=rows
    )
    kept = list(islice(batches, STEPS))
    learner.step(kept[0].to("cpu"))
    best = 0.0
    for _ in range(REPEATS):
        begin = time.process_time()
        for batch in kept:
            learner.step(batch.to("cpu"))
        best = max(best, sum(batch.pairs for batch in kept) / (time.process_time() - begin))
    return best


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    main(given.get(1), int(given.get(2, ROUNDS)))
