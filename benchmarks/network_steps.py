"""What the networks cost: scores against a loop over captions, the arithmetic of a training step, its memory.

    python benchmarks/network_steps.py [--repeats 3] [--threads 2] [--networks scan,vsepp] [--skip scores,memory]

B = 64 pairs of 36 regions of 2,048 numbers and captions as long as those of Flickr8k (14 ids on average, about 25 at
most), 10,000 words, random weights. Three tables, one run, about ten minutes on two idle cores:
  scores   scores of all pairs from encoded items and the gradient, forward and backward, D = 1024: one caption after
           the other as released code does it (benchmarks/loops) against ours, after both have been found equal in
           float64. The gradient is that of all scores, of the last SGR row that of the few scores that LMH reads.
           Seen on two idle cores: SCAN 6.9 (t2i) and 11 times faster, GSMN 6.1 (dense) and 5.0, SGRAF 1.7 (SAF) and 1.8
           (both sides are one and the same arithmetic, most of ours in matrix products), SGR 2.8 with LMH's gradient.
  steps    a training step of every network as published: encode, scores, LMH, losses of its own, backward, no Adam.
           Arithmetic is that of matrix products and convolutions, counted from their shapes while they run; share is
           arithmetic per second over that of a 2048 x 2048 x 2048 float32 product measured in between. Seen:
           62 % for VSE++ and VSE-infinity, 89 % for VSRN.
  memory   most that a process of its own has held (VmHWM) through a training step with Adam at B = 64 and 128,
           and what it held before: torch, parameters, moments, batch. Seen: <= 5.7 GB (SGR at 128).
Times are medians of the repeats, taken in turns.
"""

from __future__ import annotations

import argparse
import copy
import csv
import importlib
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from vsetune.config.component_specs import NETWORKS
from vsetune.data.stored.vocabulary import Vocabulary, tokenise
from vsetune.losses.lmh.spec import LmhSpec
from vsetune.losses.loss_base import Items, Loss, LossContext, LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network, TrainingItems
from vsetune.networks.network_building import build_network

BATCH, REGIONS, WIDTH, D, VOCABULARY, MATRIX = 64, 36, 2048, 1024, 10_000, 2048
EQUAL = 1e-4
GIGABYTE = 1e9
MOST_S = 60
PROCESS_STATUS = Path("/proc/self/status")

SCORED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "SCAN t2i lse": ("scan", "scan", {}),
    "SCAN i2t lse": ("scan", "scan", {"direction": "image_to_text"}),
    "SGRAF-SAF": ("sgraf", "sgraf_saf", {"dropout": 0.0}),
    "SGRAF-SGR": ("sgraf", "sgraf_sgr", {"dropout": 0.0}),
    "SGRAF-SGR, LMH": ("sgraf", "sgraf_sgr", {"dropout": 0.0}),
    "GSMN dense": ("gsmn", "gsmn", {}),
    "GSMN sparse": ("gsmn", "gsmn", {"text_graph": "sparse"}),
}
"""Label: its loop, its network, the network's settings."""

Run = Callable[[], object]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--networks", default=",".join(NETWORKS), help="names as in study files, by comma")
    arguments.add_argument("--skip", default="", help="tables to leave out, by comma")
    arguments.add_argument("--peak-of", nargs=2, metavar=("NETWORK", "BATCH"), help=argparse.SUPPRESS)
    given = arguments.parse_args()
    torch.set_num_threads(given.threads)
    if given.peak_of:
        print(*peak(given.peak_of[0], int(given.peak_of[1])))
        return
    names, console = given.networks.split(","), Console(width=120)
    tables = {"scores": scores_table, "steps": steps_table, "memory": memory_table}
    for title, table in tables.items():
        if title not in given.skip.split(","):
            console.print(table(names, given.repeats, given.threads))


def scores_table(names: list[str], repeats: int, threads: int) -> Table:
    table = Table("network", "loop, s", "ours, s", "ratio", "difference of scores", "of gradients",
                  title=f"scores forward and backward, B = {BATCH}, D = {D}, {threads} threads", title_justify="left")
    for label, (loop, name, settings) in SCORED.items():
        if name not in names:
            continue
        begin(f"scores of {label}")
        module = importlib.import_module(f"loops.{loop}")
        ways = {"loop": module.looped_similarity,
                "ours": getattr(module, "batched_similarity", similarity)}
        network = new_network(name, embedding_size=D, **settings)
        hardest = label.endswith("LMH")
        differences = equal(scorings(network, ways, torch.float64, hardest=hardest), label)
        times = medians(scorings(network, ways, torch.float32, hardest=hardest), repeats)
        table.add_row(label, f"{times['loop']:.2f}", f"{times['ours']:.2f}", f"{times['loop'] / times['ours']:.1f}",
                      *(f"{value:.0e}" for value in differences))
    return table


def similarity(network: Network, images: Encoded, captions: Encoded) -> Tensor:
    return network.similarity(images, captions)


def scorings(
    network: Network, ways: dict[str, Callable[..., Tensor]], dtype: torch.dtype, *, hardest: bool = False
) -> dict[str, Callable[[], list[Tensor]]]:
    """Each gives scores of one encoded batch, and the gradients of all that they depend on.

    Of all scores, randomly weighted; or of those that LMH reads, the hardest negatives.
    """
    network, (images, captions) = copy.deepcopy(network).to(dtype), batch_of(BATCH)
    with torch.no_grad():
        encoded = (network.encode_images(replace(images, features=images.features.to(dtype))),
                   network.encode_captions(captions))
    leaves = [tensor.requires_grad_() for items in encoded for tensor in (items.vectors, items.whole, items.links)
              if tensor is not None]
    similarities = {name: partial(similarity, network, *encoded) for name, similarity in ways.items()}
    scores = similarities["loop"]()
    weighting = torch.randn(BATCH, BATCH, generator=torch.Generator().manual_seed(1)).to(dtype)
    if hardest:
        given = scores.detach().requires_grad_()
        weighting, = torch.autograd.grad(lmh(BATCH)(inputs_of(given, encoded)).value, given)
    depends = torch.autograd.grad(scores.sum(), [*leaves, *network.parameters()], allow_unused=True)
    leaves = [leaf for leaf, found in zip([*leaves, *network.parameters()], depends, strict=True) if found is not None]

    def run(similarity: Callable[[], Tensor]) -> list[Tensor]:
        scores = similarity()
        return [scores.detach(), *torch.autograd.grad(scores, leaves, weighting)]

    return {name: partial(run, similarity) for name, similarity in similarities.items()}


def equal(runs: dict[str, Callable[[], list[Tensor]]], label: str) -> tuple[float, float]:
    """Largest differences of scores and of gradients, as shares of the largest number of each tensor (or of 0.01).

    In float64: in float32 a number that is 0 up to rounding falls on either side of a ReLU, and its gradient with it.
    """
    scores, *gradients = (
        float((ours - loop).abs().max() / loop.abs().max().clamp_min(1e-2))
        for ours, loop in zip(runs["ours"](), runs["loop"](), strict=True)
    )
    if not max(scores, *gradients) <= EQUAL:
        sys.exit(f"{label}: loop and ours differ by {scores:.1e} in scores and {max(gradients):.1e} in gradients, "
                 f"need {EQUAL:.0e}")
    return scores, max(gradients)


def steps_table(names: list[str], repeats: int, threads: int) -> Table:
    table = Table("network", "D", "step, s", "GFLOP", "GFLOP/s", "product, GFLOP/s", "share",
                  title=f"training step, B = {BATCH}, {threads} threads", title_justify="left")
    left, right = torch.randn(2, MATRIX, MATRIX)
    for name in names:
        begin(f"step of {name}")
        step = training_step(new_network(name), BATCH)
        # it is not asked which module computed what, which fails inside a gradient by hand
        with patch("torch.utils.module_tracker.register_multi_grad_hook"), \
             FlopCounterMode(display=False) as counter:
            step()
        work = counter.get_total_flops() / 1e9
        times = medians({"step": step, "product": lambda: left @ right}, repeats)
        rate, most = work / times["step"], 2 * MATRIX**3 / 1e9 / times["product"]
        size = NETWORKS[name]().embedding_size
        table.add_row(name, str(size), f"{times['step']:.2f}", f"{work:.0f}", f"{rate:.0f}", f"{most:.0f}",
                      f"{rate / most:.0%}")
    return table


def training_step(network: Network, batch: int) -> Run:
    images, captions = batch_of(batch)
    loss, rows = lmh(batch), torch.arange(batch)
    negatives = ~torch.eye(batch, dtype=torch.bool)

    def run() -> None:
        network.zero_grad(set_to_none=True)
        encoded = network.encode_images(images), network.encode_captions(captions)
        value = loss(inputs_of(network.similarity(*encoded), encoded)).value
        extra = network.auxiliary_losses(TrainingItems(*encoded, captions, rows, negatives))
        sum(extra.values(), value).backward()

    return run


def lmh(batch: int) -> Loss:
    return build_loss(LmhSpec(), LossContext(D, batch))


def inputs_of(similarity: Tensor, encoded: tuple[Encoded, Encoded]) -> LossInputs:
    images, captions = (Items(items.vectors) for items in encoded)
    rows = torch.arange(len(similarity))
    return LossInputs(similarity, rows, rows, rows, images=images, captions=captions)


def memory_table(names: list[str], repeats: int, threads: int) -> Table:
    table = Table("network", *(f"B = {batch}: {what}, GB" for batch in (64, 128) for what in ("peak", "before")),
                  title="memory of a process through a training step with Adam", title_justify="left")
    for name in names:
        cells: list[str] = []
        for batch in (64, 128):
            begin(f"memory of {name}, B = {batch}")
            command = [sys.executable, __file__, "--threads", str(threads), "--peak-of", name, str(batch)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            cells += [f"{float(value):.2f}" for value in done.stdout.split()] if done.returncode == 0 else ["-", "-"]
        table.add_row(name, *cells)
    return table


def peak(name: str, batch: int) -> tuple[float, float]:
    """Most that this process has held, in GB, after a step with Adam and before."""
    begin(f"a step of {name}, B = {batch}")
    network = new_network(name)
    step, optimizer = training_step(network, batch), torch.optim.Adam(network.parameters(), 2e-4)
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()  # moments are there from the second step on
    network.zero_grad(set_to_none=True)
    before = held()
    step()
    optimizer.step()
    return held(), before


def held() -> float:
    """Most GB so far. Linux: VmHWM, as ru_maxrss of a new process starts at what its parent held."""
    if PROCESS_STATUS.exists():
        line = next(line for line in PROCESS_STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / GIGABYTE
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / GIGABYTE  # bytes on macOS


def new_network(name: str, **settings: Any) -> Network:
    spec = NETWORKS[name].model_validate({"name": name, **settings})
    return build_network(spec, regions=REGIONS, width=WIDTH, vocabulary_size=VOCABULARY).train()


def batch_of(pairs: int, written: Path | None = None) -> tuple[ImageInputs, CaptionInputs]:
    """Random pairs. Lengths follow those of Flickr8k (mean 13.8, deviation 3.9), no word is likelier than another and a
    parse is a random tree. With a table of images and captions the words are those of random captions in it.
    """
    random = np.random.default_rng(0)
    captions = random_captions(random, pairs) if written is None else captions_of(written, random, pairs)
    lengths = torch.tensor([len(caption) for caption in captions])
    longest = int(lengths.max())
    tokens = torch.zeros(pairs, longest, dtype=torch.int64)
    dependencies = torch.zeros(pairs, longest, longest, dtype=torch.bool)
    for row, parse, caption in zip(tokens, dependencies, captions, strict=True):
        row[: len(caption)] = torch.tensor(caption)
        for word in range(2, len(caption) - 1):
            head = int(random.integers(1, word))
            parse[word, head] = parse[head, word] = True
    features = torch.from_numpy(random.standard_normal((pairs, REGIONS, WIDTH), dtype=np.float32)).relu()
    return ImageInputs(features, torch.full((pairs,), REGIONS)), CaptionInputs(tokens, lengths, dependencies)


def random_captions(random: np.random.Generator, pairs: int) -> list[list[int]]:
    lengths = random.gamma(9.3, 11.8 / 9.3, pairs).round().astype(np.int64).clip(1, 30) + 2
    return [random.integers(4, VOCABULARY, length).tolist() for length in lengths]


def captions_of(table: Path, random: np.random.Generator, pairs: int) -> list[list[int]]:
    """Ids of the words of random captions. table: columns image and caption."""
    with table.open(newline="", encoding="utf-8") as file:
        texts = [row["caption"] for row in csv.DictReader(file)]
    words = [tokenise(text) for text in texts]
    vocabulary = Vocabulary.build(words, min_count=4)
    assert len(vocabulary) <= VOCABULARY
    return [vocabulary.encode(words[number]) for number in random.choice(len(words), pairs, replace=False)]


def begin(what: str) -> None:
    """Say so, and draw what follows from the same seed whatever came before."""
    print(what, file=sys.stderr, flush=True)
    torch.manual_seed(0)


def medians(runs: dict[str, Run], repeats: int) -> dict[str, float]:
    """Seconds of each, one after the other in every round, so that slow moments hit all alike.

    Each has run before. No round starts after MOST_S seconds: slow networks are not repeated for minutes.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    first = time.perf_counter()
    for number in range(repeats):
        if number and time.perf_counter() - first > MOST_S:
            break
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
