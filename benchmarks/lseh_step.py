"""A training step with LSEH against one with LMH: same network, same batches, taken in turns.

    python benchmarks/lseh_step.py [STEPS]

Embedded scenes, VSE++ (D = 1024) and batches of 128 pairs, two threads. Semantic vectors are there before the clock
starts, as they are in a study. About two minutes on two cores; expect a ratio of the medians of at most 1.05.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from rich.console import Console

from vsetune.config.study import ScenesSpec
from vsetune.config.training import TrialSpec
from vsetune.data.batch import Batch
from vsetune.data.dataset import Dataset
from vsetune.jobs.preparation import make_scenes
from vsetune.training.batches import TrainingBatches
from vsetune.training.step import Learner

WARMUP = 5


def main(steps: int) -> None:
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "scenes"
        make_scenes(data, ScenesSpec(train=1000, validation=8, test=8), Console(stderr=True))
        dataset = Dataset.open(str(data))
        learners, batches = {}, {}
        for loss in ("lmh", "lseh"):
            trial = TrialSpec.model_validate({
                "study": "benchmark", "trial": loss, "cell": f"vsepp.{loss}", "seed": 0, "data": {"path": str(data)},
                "network": {"name": "vsepp"}, "loss": {"name": loss}, "training": {"batch_size": 128},
            })
            torch.manual_seed(0)
            learners[loss] = Learner.build(trial, dataset, torch.device("cpu"))
            batches[loss] = list(_take(TrainingBatches(trial, dataset, torch.device("cpu")), 30))
        seconds: dict[str, list[float]] = {loss: [] for loss in learners}
        for index in range(WARMUP + steps):
            order = list(learners) if index % 2 == 0 else list(reversed(learners))
            for loss in order:
                batch = batches[loss][index % len(batches[loss])]
                begin = time.perf_counter()
                learners[loss].step(batch)
                if index >= WARMUP:
                    seconds[loss].append(time.perf_counter() - begin)
    medians = {loss: statistics.median(values) for loss, values in seconds.items()}
    for loss, median in medians.items():
        print(f"{loss:5} {1000 * median:7.1f} ms per step, median of {steps}")
    print(f"ratio LSEH / LMH: {medians['lseh'] / medians['lmh']:.3f}")


def _take(batches: TrainingBatches, count: int) -> list[Batch]:
    taken = [batches.take(step) for step in range(count)]
    batches.close()
    return taken


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
