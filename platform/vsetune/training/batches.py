"""The batches of an attempt, and the images sampled beside them, by step number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from vsetune.config.sources.trial_inputs import NetworkReads
from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.assembly import CaptionTables, caption_tables
from vsetune.data.batches.bank_batches import bank_rows
from vsetune.data.batches.batch import Batch
from vsetune.data.batches.epoch_shards import epoch_size
from vsetune.data.batches.reader import training_batches
from vsetune.data.captions.parses import phrases_name, read_parses
from vsetune.data.captions.semantic_sources import CosineSpread, cosine_spread, semantic_vectors_of, source_name
from vsetune.data.captions.word_pieces import word_pieces_name
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import ConfigError, DataError
from vsetune.networks.network_base import Network
from vsetune.training.frozen_vectors import frozen_vectors, trained_reads, with_vectors
from vsetune.training.random_state import undisturbed
from vsetune.training.schedule import training_steps_per_epoch

_SAMPLED_PAIRS = 20_000
_MOST_SPREADS = 16
_spreads: dict[str, CosineSpread] = {}
"""Cache for the next trial of this process, by data set, its settings and source."""


class TrainingBatches:
    """Batch number `step` of the whole attempt; the order depends on (seed, epoch) alone.

    pairs: seen in one epoch; without the short last batches where the training drops them.
    """

    def __init__(self, trial: TrialSpec, dataset: Dataset, device: torch.device) -> None:
        training, split = trial.training, trial.data.train_split
        info = dataset.split(split)
        size = epoch_size(info)
        available = size.captions if training.batch_unit == "pairs" else size.images
        if training.batch_size > available:
            raise ConfigError(
                "VSE-T006", "{key}: got {got}, split {split} of {data} has {available} {unit}; use at most "
                "{available}.", key="training.batch_size", got=training.batch_size, split=split, data=trial.data.path,
                available=available, unit=training.batch_unit,
            )
        self.steps_per_epoch = training_steps_per_epoch(trial, dataset)
        self.pairs = self.steps_per_epoch * training.batch_size if training.drop_last else size.captions
        self._trial, self._dataset, self._device = trial, dataset, device
        self._semantics = _semantics(trial, dataset)
        self._vectors: np.ndarray | None = None
        reads = trained_reads(trial.network)
        self._stream = StepStream(
            trial, dataset, steps=self.steps_per_epoch, device=device, reads=reads, batch_size=training.batch_size,
            batch_unit=training.batch_unit, drop_last=training.drop_last, semantics=self._semantics,
            rows=bank_rows(dataset, split, reads, device=device, semantics=self._semantics),
        )
        _require_enough(trial, info.images)
        self._drawn: dict[int, StepStream] = {}

    def take(self, step: int) -> Batch:
        """The batch of this step, on the device. Consecutive steps read the shards once per epoch."""
        batch = self._stream.take(step)
        return (batch if self._vectors is None else with_vectors(batch, self._vectors)).to(self._device)

    def fix_images(self, network: Network) -> None:
        """Before the first batch: what a frozen image tower of this network makes of the images, in place of them."""
        split = self._trial.data.train_split
        self._vectors = frozen_vectors(network, self._dataset, split, trial=self._trial, device=self._device)

    def drawn(self, step: int, *, phase: int) -> Batch | None:
        """Images sampled beside the batch for the loss of the step's phase, on the device; None: the loss uses none.

        Call it inside the trial's random state: captions are sampled from torch's global generator.
        """
        asked = self._trial.loss_in(phase).drawn_negatives
        if asked is None:
            return None
        if asked.count not in self._drawn:
            self._drawn[asked.count] = sampled_images(self._trial, self._dataset, self._device, asked.count)
        return with_one_caption_each(self._drawn[asked.count].take(step)).to(self._device)

    def describe(self) -> dict[str, str]:
        """What the batches depend on besides data set and settings, for records; without what the trial does not read.

        `semantic_cosines` is the spread of the vectors' cosines: with little spread a semantic margin is nearly
        constant, so results must be read beside it.
        """
        reads = self._trial.network.reads
        found: dict[str, str] = {}
        source = self._trial.semantic_source
        if source is not None and self._semantics is not None:
            name = source_name(self._trial.data, source)
            key = f"{self._dataset.fingerprint} {self._trial.data.fingerprint()} {name}"
            spread = _spreads.get(key) or cosine_spread(self._semantics, pairs=_SAMPLED_PAIRS, seed=0)
            _spreads[key] = spread
            while len(_spreads) > _MOST_SPREADS:
                del _spreads[next(iter(_spreads))]
            found |= {
                "semantic_vectors": name,
                "semantic_cosines": f"{spread.mean:.3f} ± {spread.standard_deviation:.3f}, "
                f"5 to 95 %: {spread.low:.3f} to {spread.high:.3f}",
            }
        if reads.dependencies and (parses := read_parses(self._dataset.path)) is not None:
            found["dependency_parses"] = f"{parses.pipeline} {parses.version}"
        if reads.phrases:
            found["phrases"] = phrases_name(self._dataset)
        if reads.word_pieces is not None:
            found["word_pieces"] = word_pieces_name(reads.word_pieces)
        return found

    def close(self) -> None:
        """Stop reading ahead."""
        for stream in (self._stream, *self._drawn.values()):
            stream.close()


class StepStream:
    """Batches of the training split by step number (0-based, of the whole attempt), in rounds of `steps` batches.

    The order of a round depends on (seed, round) alone. An attempt continued in the middle of a round opens its reader
    once more than an uninterrupted one. Opening may draw random numbers; these must not change those of the network.
    epoch_of: the epoch that a round is for `training_batches`; more arguments go there too.
    """

    def __init__(
        self, trial: TrialSpec, dataset: Dataset, *, steps: int, device: torch.device, reads: NetworkReads,
        epoch_of: Callable[[int], int] = lambda number: number, **reading: Any,
    ) -> None:
        self._trial, self._dataset, self._steps, self._device = trial, dataset, steps, device
        self._reads, self._epoch_of, self._reading = reads, epoch_of, reading
        self._tables: CaptionTables | None = None
        self._open: Iterator[Batch] | None = None
        self._next_step = -1

    def take(self, step: int) -> Batch:
        """The batch of a step; consecutive steps open the shards once a round."""
        if self._open is None or step != self._next_step or step % self._steps == 0:
            self.close()
            with undisturbed(self._device):
                self._open = self._opened(*divmod(step, self._steps))
                batch = next(self._open, None)
        else:
            batch = next(self._open, None)
        if batch is None:
            raise DataError(
                "VSE-T007", "{data}: split {split} ended before step {step}, expected {batches} batches in every "
                "round; its manifest does not fit its shards, ingest it again.", data=self._trial.data.path,
                split=self._trial.data.train_split, step=step, batches=self._steps,
            )
        self._next_step = step + 1
        return batch

    def close(self) -> None:
        """Stop reading ahead."""
        close = getattr(self._open, "close", None)
        if close is not None:
            close()
        self._open = None

    def _opened(self, done_rounds: int, done: int) -> Iterator[Batch]:
        training, split = self._trial.training, self._trial.data.train_split
        if self._tables is None:
            self._tables = caption_tables(self._dataset, split, self._reads)
        return iter(training_batches(
            self._dataset, split, seed=self._trial.seed, epoch=self._epoch_of(done_rounds),
            shuffle_pairs=training.shuffle_pairs, skip_batches=done, workers=training.loader_workers,
            reads=self._reads, tables=self._tables, **self._reading,
        ))


def sampled_images(trial: TrialSpec, dataset: Dataset, device: torch.device, count: int) -> StepStream:
    """`count` images for every step, all different within a step, each with all its captions.

    The images pass through the split repeatedly in their own order: a continued attempt samples the same images as an
    uninterrupted one.
    """
    split, reads = trial.data.train_split, replace(trial.network.reads, phrases=False, siblings=False)
    with undisturbed(device):
        rows = bank_rows(dataset, split, reads, device=torch.device("cpu"))
    return StepStream(
        trial, dataset, steps=dataset.split(split).images // count, device=device, reads=reads, batch_size=count,
        batch_unit="images", drop_last=True, rows=rows,
        epoch_of=lambda number: -1 - number,  # epochs of the batches count up from 0: another order
    )


def with_one_caption_each(batch: Batch) -> Batch:
    """The images of a batch, each with one of its captions, sampled with torch's global generator."""
    counts = batch.caption_rows.bincount(minlength=len(batch.image_ids))
    first = counts.cumsum(0) - counts
    chosen = first + (torch.rand(len(counts), dtype=torch.float64) * counts).long()
    captions = batch.captions[chosen]
    longest = int(captions.lengths.max())
    dependencies = captions.dependencies
    captions = replace(
        captions, tokens=captions.tokens[:, :longest],
        dependencies=None if dependencies is None else dependencies[:, :longest, :longest],
    )
    return replace(
        batch, captions=captions, caption_rows=torch.arange(len(counts)), caption_ids=batch.caption_ids[chosen]
    )


def _require_enough(trial: TrialSpec, available: int) -> None:
    """ConfigError when a loss samples more images than the training split has, in any phase."""
    for phase in range(max(1, len(trial.training.phases))):
        asked = trial.loss_in(phase).drawn_negatives
        if asked is not None and asked.count > available:
            raise ConfigError(
                "VSE-T006", "{key}: got {got}, split {split} of {data} has {available} {unit}; use at most "
                "{available}.", key="loss.drawn", got=asked.count, split=trial.data.train_split, data=trial.data.path,
                available=available, unit="images",
            )


def _semantics(trial: TrialSpec, dataset: Dataset) -> np.ndarray | None:
    """Vectors of the captions that the loss reads, in any phase; all phases of a trial read the same ones."""
    source = trial.semantic_source
    if source is None:
        return None
    return semantic_vectors_of(dataset, trial.data, source, split=trial.data.train_split)
