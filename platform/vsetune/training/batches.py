"""The batches of an attempt, by step number."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.assembly import CaptionTables, caption_tables
from vsetune.data.batches.bank_batches import bank_rows
from vsetune.data.batches.batch import Batch
from vsetune.data.batches.reader import steps_per_epoch, training_batches
from vsetune.data.captions.parses import phrases_name, read_parses
from vsetune.data.captions.semantic_sources import CosineSpread, cosine_spread, semantic_vectors_of, source_name
from vsetune.data.captions.word_pieces import word_pieces_name
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import ConfigError, DataError
from vsetune.training.drawn_negatives import DrawnImages, drawn_in, require_enough
from vsetune.training.random_state import undisturbed

_SAMPLED_PAIRS = 20_000
_MOST_SPREADS = 16
_spreads: dict[str, CosineSpread] = {}
"""Cache for the next trial of this process, by data set, its settings and source."""


def training_steps_per_epoch(trial: TrialSpec, dataset: Dataset) -> int:
    """Steps of a trial in one epoch; with dropped last batches 0 where no batch is full."""
    training = trial.training
    return steps_per_epoch(
        dataset, trial.data.train_split, batch_size=training.batch_size, batch_unit=training.batch_unit,
        drop_last=training.drop_last,
    )


class TrainingBatches:
    """Batch number `step` of the whole attempt; the order depends on (seed, epoch) alone.

    pairs: seen in one epoch; without the short last batches where the training drops them.
    """

    def __init__(self, trial: TrialSpec, dataset: Dataset, device: torch.device) -> None:
        training, split = trial.training, trial.data.train_split
        info = dataset.split(split)
        available = info.captions if training.batch_unit == "pairs" else info.images
        if training.batch_size > available:
            raise ConfigError(
                f"training.batch_size: got {training.batch_size}, split {split} of {trial.data.path} has "
                f"{available} {training.batch_unit}; use at most {available}."
            )
        self.steps_per_epoch = training_steps_per_epoch(trial, dataset)
        self.pairs = self.steps_per_epoch * training.batch_size if training.drop_last else info.captions
        self._trial = trial
        self._dataset = dataset
        self._device = device
        self._semantics = _semantics(trial, dataset)
        self._rows = bank_rows(dataset, split, trial.network.reads, device=device, semantics=self._semantics)
        self._tables: CaptionTables | None = None
        self._open: Iterator[Batch] | None = None
        self._next_step = -1
        require_enough(trial, dataset)
        self._drawn: dict[int, DrawnImages] = {}

    def take(self, step: int) -> Batch:
        """The batch of this step, on the device. Consecutive steps read the shards once per epoch."""
        if self._open is None or step != self._next_step or step % self.steps_per_epoch == 0:
            batch = self._start(step)
        else:
            batch = next(self._open, None)
        if batch is None:
            raise DataError(
                f"{self._trial.data.path}: split {self._trial.data.train_split} ended before step {step}, expected "
                f"{self.steps_per_epoch} batches per epoch; its manifest does not fit its shards, ingest it again."
            )
        self._next_step = step + 1
        return batch.to(self._device)

    def drawn(self, step: int, *, phase: int) -> Batch | None:
        """Images sampled beside the batch for the loss of the step's phase, on the device; None: the loss uses none.

        Call it inside the trial's random state: captions are sampled from torch's global generator.
        """
        asked = drawn_in(self._trial, phase)
        if asked is None:
            return None
        if asked.count not in self._drawn:
            self._drawn[asked.count] = DrawnImages(self._trial, self._dataset, self._device, asked.count)
        return self._drawn[asked.count].take(step)

    def describe(self) -> dict[str, str]:
        """What the batches depend on besides data set and settings, for records."""
        captions = self.describe_parses() | self.describe_phrases() | self.describe_word_pieces()
        return self.describe_semantics() | captions

    def describe_semantics(self) -> dict[str, str]:
        """Which semantic vectors the loss reads, and the spread of their cosines; empty where it reads none.

        With little spread a semantic margin is nearly constant, so results must be read beside these numbers.
        """
        source = self._trial.semantic_source
        if source is None or self._semantics is None:
            return {}
        name = source_name(self._trial.data, source)
        key = f"{self._dataset.fingerprint} {self._trial.data.fingerprint()} {name}"
        spread = _spreads.get(key) or cosine_spread(self._semantics, pairs=_SAMPLED_PAIRS, seed=0)
        _spreads[key] = spread
        while len(_spreads) > _MOST_SPREADS:
            del _spreads[next(iter(_spreads))]
        return {
            "semantic_vectors": name,
            "semantic_cosines": f"{spread.mean:.3f} ± {spread.standard_deviation:.3f}, "
            f"5 to 95 %: {spread.low:.3f} to {spread.high:.3f}",
        }

    def describe_parses(self) -> dict[str, str]:
        """Which pipeline parsed the captions; empty where the network reads no parses."""
        parses = read_parses(self._dataset.path) if self._trial.network.reads.dependencies else None
        return {} if parses is None else {"dependency_parses": f"{parses.pipeline} {parses.version}"}

    def describe_phrases(self) -> dict[str, str]:
        """Which pipeline found the phrases that are masked together; empty where the network masks none."""
        return {"phrases": phrases_name(self._dataset)} if self._trial.network.reads.phrases else {}

    def describe_word_pieces(self) -> dict[str, str]:
        """Which tokeniser splits the captions; empty where the network reads words of the data set."""
        model = self._trial.network.reads.word_pieces
        return {} if model is None else {"word_pieces": word_pieces_name(model)}

    def close(self) -> None:
        """Stop reading ahead."""
        self._close_epoch()
        for drawn in self._drawn.values():
            drawn.close()

    def _close_epoch(self) -> None:
        close = getattr(self._open, "close", None)
        if close is not None:
            close()
        self._open = None

    def _start(self, step: int) -> Batch | None:
        self._close_epoch()
        epoch, done = divmod(step, self.steps_per_epoch)
        training, split, reads = self._trial.training, self._trial.data.train_split, self._trial.network.reads
        # A run continued in the middle of an epoch opens its reader once more than an uninterrupted one:
        # whatever opening draws must not shift the random numbers of the network.
        with undisturbed(self._device):
            if self._tables is None:
                self._tables = caption_tables(self._dataset, split, reads, mirrored=reads.swaps_sides)
            self._open = iter(
                training_batches(
                    self._dataset, split, batch_size=training.batch_size, batch_unit=training.batch_unit,
                    seed=self._trial.seed, epoch=epoch, shuffle_pairs=training.shuffle_pairs, skip_batches=done,
                    workers=training.loader_workers, drop_last=training.drop_last, semantics=self._semantics,
                    reads=reads, tables=self._tables, rows=self._rows,
                )
            )
            return next(self._open, None)


def _semantics(trial: TrialSpec, dataset: Dataset) -> np.ndarray | None:
    """Vectors of the captions that the loss reads, in any phase; all phases of a trial read the same ones."""
    source = trial.semantic_source
    if source is None:
        return None
    return semantic_vectors_of(dataset, trial.data, source, split=trial.data.train_split)
