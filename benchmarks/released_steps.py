"""A whole training step as released code takes it, against ours: both in turns in one run.

    python benchmarks/released_steps.py [--repeats 5] [--threads 1] [--batch 64] [--size 1024] [--only SCAN] [--adam]
        [--captions $VSETUNE_FLICKR8K/captions.csv]

A step encodes, scores all pairs, takes the hardest negatives (LMH) and carries back; with --adam it also clips, which
both sides do alike, and changes the weights, ours in one pass. Released-style are torch's own GRU and linear maps, and
of networks that score pairs one caption after the other (benchmarks/loops); the loss is the same on both sides. B = 64
pairs of 36 regions of 2,048 numbers, 10,000 words, D = 1024. Captions are those of a table of images and captions, that
of Flickr8k where VSETUNE_FLICKR8K is set: what repeats in them our step computes once. Else (`--captions random`) they
are as long as those, of random words, which hardly ever repeat. What a step frees is kept for the next one, as
trainings do, on both sides. Processor time, as other work on the machine does not count; medians of the repeats. Both
sides must have found the same loss first. `products` is what our step spends in products of matrices, and `at most` the
ratio of a step of these products and nothing else.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import torch
from network_steps import Run, batch_of, begin, inputs_of, lmh, new_network
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from vsetune.data.freed_memory import keep_freed_memory
from vsetune.networks.encoded import Encoded
from vsetune.networks.network_base import Network
from vsetune.networks.parts.network_devices import PLAIN_AUTOGRAD

STEPS: dict[str, tuple[str, str | None]] = {
    "VSE++": ("vsepp", None), "VSE-infinity": ("vse_infinity", None), "SCAN": ("scan", "scan"),
    "SGRAF-SAF": ("sgraf_saf", "sgraf"), "SGRAF-SGR": ("sgraf_sgr", "sgraf"), "GSMN": ("gsmn", "gsmn"),
}
"""Label: network, its loop over captions."""

PRODUCTS = {f"aten::{name}" for name in ("mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_")}
RANDOM = "random"
LARGEST_NORM, RATE, CLOSE = 2.0, 2e-4, 1e-3


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--batch", type=int, default=64)
    arguments.add_argument("--size", type=int, default=1024)
    arguments.add_argument("--only", default=",".join(STEPS), help="rows to measure, by comma")
    arguments.add_argument("--adam", action="store_true", help="clipping and Adam too")
    arguments.add_argument("--captions", default=real_captions(), help="table of captions, or random")
    given = arguments.parse_args()
    torch.set_num_threads(given.threads)
    keep_freed_memory()
    table = Table("network", "released-style, ms", "ours, ms", "ratio", "all turns", "products, ms", "at most",
                  title=f"training step, B = {given.batch}, D = {given.size}, {given.threads} threads, "
                        f"captions {given.captions}, processor time")
    for label in given.only.split(","):
        name, loop = STEPS[label]
        steps = both_steps(label, name, loop, given)
        released, ours = in_turns(*steps, given.repeats)
        products = in_products(steps[1], given.repeats)
        ratios = [one / other for one, other in zip(released, ours, strict=True)]
        table.add_row(label, f"{1e3 * statistics.median(released):.0f}", f"{1e3 * statistics.median(ours):.0f}",
                      f"{statistics.median(ratios):.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}",
                      f"{1e3 * products:.0f}", f"{statistics.median(released) / products:.2f}")
    Console(width=120).print(table)


def real_captions() -> str:
    folder = os.environ.get("VSETUNE_FLICKR8K")
    return RANDOM if folder is None else str(Path(folder) / "captions.csv")


def both_steps(label: str, name: str, loop: str | None, given: argparse.Namespace) -> tuple[Run, Run]:
    looped = importlib.import_module(f"loops.{loop}").looped_similarity if loop is not None else None
    steps, losses = [], []
    for similarity in (looped or Network.similarity, None):
        begin(f"{label}, {'ours' if similarity is None else 'released-style'}")
        network = new_network(name, embedding_size=given.size)
        written = None if given.captions == RANDOM else Path(given.captions)
        step = whole_step(network, given.batch, similarity, written, changes_weights=given.adam)
        steps.append(step)
        with released_way(similarity is not None):
            torch.manual_seed(1)  # the same words dropped
            losses.append(step())
    if not abs(losses[0] - losses[1]) <= CLOSE * abs(losses[0]):
        sys.exit(f"{label}: released-style finds a loss of {losses[0]:.6g}, ours {losses[1]:.6g}")
    return steps[0], steps[1]


def whole_step(
    network: Network, batch: int, similarity: Callable[[Network, Encoded, Encoded], Tensor] | None,
    written: Path | None, *, changes_weights: bool,
) -> Callable[[], float]:
    images, captions = batch_of(batch, written)
    is_ours = similarity is None
    loss, optimizer = lmh(batch), torch.optim.Adam(network.parameters(), RATE, fused=is_ours)

    def run() -> float:
        optimizer.zero_grad(set_to_none=True)
        encoded = network.encode_images(images), network.encode_captions(captions)
        scores = network.similarity(*encoded) if is_ours else similarity(network, *encoded)
        value = loss(inputs_of(scores, encoded)).value
        value.backward()
        if changes_weights:
            torch.nn.utils.clip_grad_norm_(network.parameters(), LARGEST_NORM)
            optimizer.step()
        return float(value.detach())

    return run


def released_way(is_on: bool) -> patch.dict:
    """What torch itself does, where it is on."""
    return patch.dict(os.environ, {PLAIN_AUTOGRAD: str(int(is_on))})


def in_turns(released: Run, ours: Run, repeats: int) -> tuple[list[float], list[float]]:
    """Seconds of processor time of every turn."""
    times: tuple[list[float], list[float]] = [], []
    for _ in range(repeats):
        for seconds, step, is_on in zip(times, (released, ours), (True, False), strict=True):
            with released_way(is_on):
                start = time.process_time()
                step()
                seconds.append(time.process_time() - start)
    return times


def in_products(step: Run, repeats: int) -> float:
    """Seconds of our step in products of matrices, by the clock."""
    seconds = []
    for _ in range(repeats):
        with released_way(False), profile(activities=[ProfilerActivity.CPU]) as found:
            step()
        seconds.append(sum(each.self_cpu_time_total for each in found.key_averages() if each.key in PRODUCTS) / 1e6)
    return statistics.median(seconds)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
