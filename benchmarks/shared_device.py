"""Several small trials at once on one device, against one alone: pairs per second of all together.

    python benchmarks/shared_device.py [--device cpu] [--trials 1,2,4] [--threads 1,2] [--seconds 5] [--rounds 3]
                                       [--network vsepp] [--size 256] [--batch 64]

Each trial trains in a process of its own with batches already on the device; on a GPU it may hold its share of the
memory (`gpus: 0.25` of a study does the same). All combinations are measured in turn, `--rounds` times, in one run;
the table has the medians and their ratio to one trial with the first number of threads, by the clock and by the time
that processors worked (which other work on the machine hardly moves). Two idle cores: about two minutes.

Below it what several configurations of one cell in one process could gain at most: products of k networks of that size
one after the other, against one batched product, and whether both give the same bits. They need not, and then a trial's
curve would depend on which trials stood beside it: so nothing stacks trials here.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from gpu.cases import small_network
from gpu.made_data import Made, make_data
from gpu.sharing import Shared, measured
from gpu.timing import median_seconds
from vsetune.training.device import choose_device

DATA = Made(images=200, evaluated=4, regions=36, width=1280, rare=3000)
STACKED = (2, 4, 8)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--trials", type=numbers, default=(1, 2, 4))
    arguments.add_argument("--threads", type=numbers, default=(1, 2))
    arguments.add_argument("--seconds", type=float, default=5.0)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--network", default="vsepp")
    arguments.add_argument("--size", type=int, default=256, help="of the embedding")
    arguments.add_argument("--batch", type=int, default=64)
    given = arguments.parse_args()
    console, device = Console(width=120), choose_device(given.device)
    network = small_network(given.network, embedding_size=given.size, word_size=given.size)
    with tempfile.TemporaryDirectory() as folder:
        data = make_data(Path(folder), DATA)
        combinations = [
            (trials, threads) for threads, trials in itertools.product(given.threads, given.trials)
            if trials == 1 or threads == given.threads[0]
        ]
        found: dict[tuple[int, int], list[Shared]] = {each: [] for each in combinations}
        for _, (trials, threads) in itertools.product(range(given.rounds), combinations):
            found[trials, threads].append(measured(
                network, data, str(device), trials=trials, threads=threads, training={"batch_size": given.batch},
                seconds=given.seconds,
            ))
    title = f"{given.network}, D = {given.size}, B = {given.batch}, {device}, medians of {given.rounds} rounds"
    console.print(table_of(found, title))
    console.print(stacked_table(device, size=given.size, batch=given.batch))


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


def table_of(found: dict[tuple[int, int], list[Shared]], title: str) -> Table:
    table = Table("trials at once", "threads each", "pairs/s together", "against one", "slowest trial, pairs/s",
                  "pairs per processor second", "against one", title=title, title_justify="left")
    first = next(iter(found.values()))
    alone = statistics.median(each.pairs_s for each in first)
    alone_worked = statistics.median(each.per_processor_s for each in first)
    for (trials, threads), rounds in found.items():
        together = statistics.median(each.pairs_s for each in rounds)
        slowest = statistics.median(each.slowest for each in rounds)
        worked = statistics.median(each.per_processor_s for each in rounds)
        table.add_row(
            str(trials), str(threads), f"{together:,.0f}", f"{together / alone:.2f}", f"{slowest:,.0f}",
            f"{worked:,.0f}", f"{worked / alone_worked:.2f}",
        )
    return table


def stacked_table(device: torch.device, *, size: int, batch: int) -> Table:
    """Of the largest product of a GRU's step: (batch, size) by (size, 3 size)."""
    table = Table("networks", "one by one, ms", "batched, ms", "ratio", "same bits",
                  title="products of several networks", title_justify="left")
    for count in STACKED:
        states = torch.randn(count, batch, size, device=device)
        weights = torch.randn(count, size, 3 * size, device=device)
        pairs = list(zip(states.unbind(), weights.unbind(), strict=True))

        def one_by_one(pairs: list[tuple[torch.Tensor, torch.Tensor]] = pairs) -> list[torch.Tensor]:
            return [state @ weight for state, weight in pairs]

        def batched(states: torch.Tensor = states, weights: torch.Tensor = weights) -> torch.Tensor:
            return torch.bmm(states, weights)

        slow, fast = (median_seconds(run, device, repeats=50) for run in (one_by_one, batched))
        same = "yes" if torch.equal(torch.stack(one_by_one()), batched()) else "no"
        table.add_row(str(count), f"{1000 * slow:.3f}", f"{1000 * fast:.3f}", f"{slow / fast:.2f}", same)
    return table


if __name__ == "__main__":
    main()
