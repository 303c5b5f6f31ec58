"""Memory of a training step on 4,096 pairs in chunks of 256, against a step on 256 pairs at once.

    python benchmarks/chunk_memory.py [--pairs 4096] [--chunk 256] [--network photographs] [--size 256] [--words 20]

Every step runs in a process of its own, which prints the most memory that it held above what it held with its batch and
its network. `towers` is the encoding and its backward pass with given gradients; the encoded items of all pairs and
their gradients are part of it. `step` is a whole step with InfoNCE, whose scores are (pairs, pairs). The ratio is that
of the towers. `photographs` is MSE** with a small ResNet on 64 x 64 pixels; other networks read stored regions.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import torch
from rich.console import Console
from rich.table import Table

from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.batch import Batch
from vsetune.losses.loss_base import LossContext
from vsetune.losses.loss_building import build_loss
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_building import build_network
from vsetune.training.device import peak_memory_bytes, reset_peak_memory
from vsetune.training.encoding import BatchEncoder
from vsetune.training.step import Learner, Optimizers

REGIONS, WIDTH, WORDS, PIXELS = 36, 256, 5_000, 64
NETWORKS = {
    "photographs": {
        "name": "mse", "image_input": "pixels", "image_size": PIXELS,
        "backbone": {"model": "random", "depths": [1, 1], "widths": [16, 32], "batch_norm": "frozen"},
    },
}
CPU = torch.device("cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=4096)
    parser.add_argument("--chunk", type=int, default=256)
    parser.add_argument("--network", default="photographs")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--words", type=int, default=20)
    parser.add_argument("--measure", nargs=3, metavar=("PAIRS", "CHUNK", "WHAT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        pairs, chunk, what = given.measure
        print(measured(given, int(pairs), int(chunk) or None, what))
        return
    rows = ((given.chunk, 0), (given.pairs, given.chunk), (given.pairs, 0))
    found = {(row, what): asked(given, *row, what) for row in rows for what in ("towers", "step")}
    table = Table("pairs", "chunk", "towers, MiB", "step, MiB", title=f"{given.network}, {given.size} wide")
    for pairs, chunk in rows:
        numbers = (f"{found[(pairs, chunk), what]:,.0f}" for what in ("towers", "step"))
        table.add_row(str(pairs), str(chunk or "at once"), *numbers)
    console = Console(width=100)
    console.print(table)
    console.print(f"towers, {given.pairs} pairs in chunks / {given.chunk} pairs at once: "
                  f"{found[rows[1], 'towers'] / found[rows[0], 'towers']:.2f}")


def asked(given: argparse.Namespace, pairs: int, chunk: int, what: str) -> float:
    words = ["--network", given.network, "--size", str(given.size), "--words", str(given.words)]
    command = [sys.executable, __file__, *words, "--measure", str(pairs), str(chunk), what]
    exact = {"MALLOC_MMAP_THRESHOLD_": "65536"}  # freed tensors go back to the system at once
    return float(subprocess.run(command, env=os.environ | exact, stdout=subprocess.PIPE, text=True, check=True).stdout)


def measured(given: argparse.Namespace, pairs: int, chunk: int | None, what: str) -> float:
    """MiB above those of the batch and the network."""
    torch.set_num_threads(1)
    learner, batch = learner_of(given, pairs, chunk), batch_of(given, pairs)
    learner.step(batch_of(given, 8))  # buffers of the libraries, moments of the optimizer
    learner.optimizers.zero_grad()
    reset_peak_memory(CPU)
    before = peak_memory_bytes(CPU) or 0
    if what == "step":
        learner.step(batch)
    else:
        encoder = BatchEncoder(learner.network, learner.trial, CPU, 0.0)
        images, captions = (items.vectors for items in encoder.items(batch))
        torch.autograd.backward([images, captions], [torch.ones_like(images), torch.ones_like(captions)])
    return ((peak_memory_bytes(CPU) or 0) - before) / 2**20


def learner_of(given: argparse.Namespace, pairs: int, chunk: int | None) -> Learner:
    trial = TrialSpec.model_validate({
        "study": "memory", "trial": "one", "cell": "one", "seed": 0, "data": {"path": "nowhere"},
        "network": NETWORKS.get(given.network, {"name": given.network}) | {"embedding_size": given.size},
        "loss": {"name": "info_nce"}, "training": {"batch_size": max(2, pairs), "chunk_size": chunk},
    })
    network = build_network(trial.network, regions=REGIONS, width=WIDTH, vocabulary_size=WORDS)
    context = LossContext(network.embedding_size, pairs)
    loss = build_loss(trial.loss, context)
    optimizers = Optimizers(trial.training, network.parameter_groups(), loss)
    return Learner(trial, 100, 0, network, loss, optimizers, context, CPU)


def batch_of(given: argparse.Namespace, pairs: int) -> Batch:
    torch.manual_seed(0)
    numbers, is_pixels = torch.arange(pairs), given.network == "photographs"
    regions, width = (1, 0) if is_pixels else (REGIONS, WIDTH)
    pixels = torch.randint(256, (pairs, 1, 3, PIXELS, PIXELS), dtype=torch.uint8) if is_pixels else None
    images = ImageInputs(torch.randn(pairs, regions, width), torch.full((pairs,), regions), pixels=pixels)
    lengths = torch.randint(given.words // 2, given.words + 1, (pairs,))
    captions = CaptionInputs(torch.randint(3, WORDS, (pairs, given.words)), lengths)
    return Batch(images, captions, image_ids=numbers, caption_rows=numbers, caption_ids=numbers)


if __name__ == "__main__":
    main()
