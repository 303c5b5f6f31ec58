"""How fast the reader delivers batches against how fast VSE++ consumes them.

    python benchmarks/reader_throughput.py [FOLDER]

FOLDER: an ingested data set; without one, scenes with features of Flickr8k's shape (36 regions x 1280) are made. The
reader runs alone, then VSE++ (D = 512) trains on batches already in memory; both with two threads. About a minute;
expect a ratio of at least 3.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import torch
from rich.console import Console

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.batch import Batch
from vsetune.data.batches.reader import training_batches
from vsetune.data.making.ingest import ingest
from vsetune.data.progress import terminal_progress
from vsetune.data.stored.dataset import Dataset
from vsetune.training.step import Learner

BATCH, STEPS, REPEATS = 128, 30, 2


def main(folder: str | None) -> None:
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as temporary:
        dataset = Dataset.open(folder or wide_scenes(Path(temporary) / "scenes"))
        read, batches = reader_rate(dataset)
        consumed = network_rate(dataset, batches)
    print(f"reader {read:8,.0f} pairs/s")
    print(f"VSE++  {consumed:8,.0f} pairs/s (forward, backward, optimizer)")
    print(f"ratio reader / VSE++: {read / consumed:.1f}")


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


def reader_rate(dataset: Dataset) -> tuple[float, list[Batch]]:
    """Pairs per second over whole epochs (the best of REPEATS), and the first batches of the last one."""
    best, kept = 0.0, []
    for epoch in range(REPEATS):
        kept, pairs, begin = [], 0, time.perf_counter()
        batches = training_batches(
            dataset, "train", batch_size=BATCH, batch_unit="pairs", seed=0, epoch=epoch, shuffle_pairs=10_000,
        )
        for batch in batches:
            pairs += batch.pairs
            if len(kept) < STEPS:
                kept.append(batch)
        best = max(best, pairs / (time.perf_counter() - begin))
    return best, kept


def network_rate(dataset: Dataset, batches: list[Batch]) -> float:
    """Pairs per second of training steps (the best of REPEATS)."""
    trial = TrialSpec.model_validate({
        "study": "benchmark", "trial": "t", "cell": "vsepp.lmh", "seed": 0, "data": {"path": "benchmark"},
        "network": {"name": "vsepp", "embedding_size": 512}, "loss": {"name": "lmh"}, "training": {},
    })
    learner = Learner.build(trial, dataset, torch.device("cpu"))
    learner.step(batches[0].to("cpu"))
    best = 0.0
    for _ in range(REPEATS):
        begin = time.perf_counter()
        for batch in batches:
            learner.step(batch.to("cpu"))
        best = max(best, sum(batch.pairs for batch in batches) / (time.perf_counter() - begin))
    return best


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
