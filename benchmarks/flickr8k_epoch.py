"""An epoch of VSE++ on Flickr8k against a plain PyTorch loop over arrays in memory, in one run.

    python benchmarks/flickr8k_epoch.py [FOLDER] [STEPS] [THREADS]

FOLDER: an ingested data set; without one, Flickr8k is ingested from VSETUNE_FLICKR8K (`studies/data/flickr8k.yaml`)
into VSETUNE_HOME, and where that is not set the benchmark says so and ends. The plain loop holds all features as
float32 and all captions as lists, shuffles pairs, gathers, sorts and pads a batch, and steps as the authors' code does:
mean of the regions, linear map, packed GRU, hardest hinges, clipped Adam, D = 512, B = 128. Ours is an attempt as a
worker trains it, from the bank, with its window, negatives and clocks; neither validates. They take turns, an eighth of
the epoch each, with two threads unless told otherwise; by the clock, and by the processor's time, which other work on
the machine moves less. Two minutes on two idle cores; expect at most 1.0 times the plain loop. STEPS ends the epoch
early, for a machine that is busy.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vsetune.config.sources.trial_inputs import Reading
from vsetune.config.study.training import TrialSpec
from vsetune.data.making.data_place import load_recipe
from vsetune.data.making.ingest import ingest
from vsetune.data.stored.bank_file import SplitBank
from vsetune.data.stored.banks import bank_of
from vsetune.data.stored.dataset import Dataset
from vsetune.data.terminal_progress import terminal_progress
from vsetune.home.paths import home
from vsetune.training.attempt import TrainingAttempt

THREADS, BATCH, D, TURNS = 2, 128, 512, 8
RECIPE = Path(__file__).parents[1] / "studies" / "data" / "flickr8k.yaml"
Steps = Callable[[int], None]
"""Takes so many training steps."""


def main(folder: str | None, steps: int | None, threads: int) -> None:
    torch.set_num_threads(threads)
    folder = folder or flickr8k()
    if folder is None:
        print("skipped: VSETUNE_FLICKR8K is not set; it names the folder with captions.csv and the image archives")
        return
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["VSETUNE_HOME"] = temporary
        reading = Reading("bank")
        dataset = Dataset.open(folder, reading=reading)
        bank = bank_of(dataset, "train")
        assert bank is not None, "the disk of the temporary folder takes no bank"
        attempt = TrainingAttempt(
            trial(folder), Path(temporary) / "trial", device="cpu", threads=threads, reading=reading
        )
        epoch = attempt._batches.steps_per_epoch
        show(*in_turn({"plain": Plain(bank, len(dataset.vocabulary)).steps, "ours": ours(attempt)}, steps or epoch))
        attempt.close()


def flickr8k() -> str | None:
    """The folder of Flickr8k as we ingest it, made first where need be; None without its images."""
    if not os.environ.get("VSETUNE_FLICKR8K"):
        return None
    recipe = load_recipe(RECIPE)
    recipe = recipe.model_copy(update={"output": str(home() / recipe.output)})
    with terminal_progress(Console(stderr=True)) as progress:
        ingest(recipe, progress=progress)
    return recipe.output


def trial(folder: str) -> TrialSpec:
    return TrialSpec.model_validate({
        "study": "benchmark", "trial": "t", "cell": "vsepp.lmh", "seed": 0, "data": {"path": folder},
        "network": {"name": "vsepp", "embedding_size": D}, "loss": {"name": "lmh"},
        "training": {"batch_size": BATCH},
    })


def ours(attempt: TrainingAttempt) -> Steps:
    def take(count: int) -> None:
        with attempt._random.active():
            for _ in range(count):
                attempt._step()

    return take


class Plain(nn.Module):
    """VSE++ as its authors wrote it, over arrays in memory."""

    def __init__(self, bank: SplitBank, words: int) -> None:
        super().__init__()
        shape = bank.shape
        held = np.empty((shape.images, shape.regions, shape.width), np.float16)
        bank.read_features(np.arange(shape.images), held)
        self.features = torch.from_numpy(held).float()
        self.captions = [bank.caption(number).tolist() for number in range(shape.captions)]
        self.image_of = np.repeat(np.arange(shape.images), np.diff(bank.first_captions))
        self.map, self.embed = nn.Linear(shape.width, D), nn.Embedding(words, 300)
        self.gru = nn.GRU(300, D, batch_first=True)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=2e-4)
        self._waiting = np.empty(0, np.int64)

    def steps(self, count: int) -> None:
        for _ in range(count):
            if len(self._waiting) == 0:
                self._waiting = np.random.default_rng(0).permutation(len(self.captions))
            chosen, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            self._step(*self._batch(chosen))

    def _batch(self, chosen: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        ordered = sorted(chosen.tolist(), key=lambda number: -len(self.captions[number]))
        lengths = torch.tensor([len(self.captions[number]) for number in ordered])
        tokens = torch.zeros(len(ordered), int(lengths[0]), dtype=torch.long)
        for row, number in enumerate(ordered):
            tokens[row, : lengths[row]] = torch.tensor(self.captions[number])
        return self.features[torch.from_numpy(self.image_of[ordered])], tokens, lengths

    def _step(self, features: Tensor, tokens: Tensor, lengths: Tensor) -> None:
        images = normalize(self.map(features.mean(1)), dim=1)
        packed = pack_padded_sequence(self.embed(tokens), lengths, batch_first=True)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        captions = normalize(states[torch.arange(len(lengths)), lengths - 1], dim=1)
        scores = images @ captions.t()
        own, same = scores.diagonal()[:, None], torch.eye(len(scores), dtype=torch.bool)
        by_caption = (0.2 + scores - own).clamp(min=0).masked_fill(same, 0).max(1)[0]
        by_image = (0.2 + scores - own.t()).clamp(min=0).masked_fill(same, 0).max(0)[0]
        self.optimizer.zero_grad()
        loss = by_caption.sum() + by_image.sum()
        loss.backward()
        clip_grad_norm_(self.parameters(), 2.0)
        self.optimizer.step()
        loss.item()  # the authors log it


def in_turn(ways: dict[str, Steps], steps: int) -> tuple[int, dict[str, list[tuple[float, float]]]]:
    """(steps of each, seconds of each turn by the clock and of the processor), the first step of each not counted."""
    for take in ways.values():
        take(1)
    a_turn = max(1, steps // TURNS)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(TURNS):
        for name, take in ways.items() if number % 2 == 0 else reversed(ways.items()):
            begin, working = time.perf_counter(), time.process_time()
            take(a_turn)
            found[name].append((time.perf_counter() - begin, time.process_time() - working))
    return a_turn * TURNS, found


def show(steps: int, found: dict[str, list[tuple[float, float]]]) -> None:
    """Totals, and the ratio of the turns' medians."""
    for name, turns in found.items():
        clock, own = (sum(column) for column in zip(*turns, strict=True))
        print(f"{name:6}{steps} steps in {clock:7.1f} s by the clock, {own:7.1f} s of the processor; "
              f"{steps * BATCH / clock:,.0f} pairs/s")
    for number, what in enumerate(("by the clock", "of the processor")):
        ratios = sorted(mine[number] / plain[number]
                        for mine, plain in zip(found["ours"], found["plain"], strict=True))
        print(f"ours / plain {what}: {np.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    main(given.get(1), int(given[2]) if 2 in given else None, int(given.get(3, THREADS)))
