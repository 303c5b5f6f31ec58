"""Images sampled from the training split beside the batch of a step, for losses that search for negatives among
them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.bank_batches import BankRows, bank_rows
from vsetune.data.batches.batch import Batch
from vsetune.data.batches.caption_tables import CaptionTables, caption_tables
from vsetune.data.batches.reader import training_batches
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import ConfigError, DataError
from vsetune.losses.loss_spec import DrawnNegatives
from vsetune.networks.inputs import CaptionInputs
from vsetune.scoring.network_inputs import caption_inputs
from vsetune.training.random_state import undisturbed


def drawn_in(trial: TrialSpec, phase: int) -> DrawnNegatives | None:
    """The sampled negatives that the loss of a phase (0-based) uses; None: it uses none."""
    return trial.loss_in(phase).drawn_negatives


def require_enough(trial: TrialSpec, dataset: Dataset) -> None:
    """ConfigError when a loss samples more images than the training split has, in any phase."""
    split = trial.data.train_split
    available = dataset.split(split).images
    for phase in range(max(1, len(trial.training.phases))):
        asked = drawn_in(trial, phase)
        if asked is not None and asked.count > available:
            raise ConfigError(
                f"loss.drawn: got {asked.count}, split {split} of {trial.data.path} has {available} images; draw at "
                f"most {available}."
            )


class DrawnImages:
    """`count` images for every step, all different within a step, each with one of its captions.

    The images pass through the split repeatedly in their own order, set by (seed, round) alone: a continued attempt
    samples the same images as an uninterrupted one. The caption of an image is sampled from torch's global generator,
    which during training has the trial's own state.
    """

    def __init__(self, trial: TrialSpec, dataset: Dataset, device: torch.device, count: int) -> None:
        self._trial, self._dataset, self._device, self._count = trial, dataset, device, count
        self._steps_per_round = dataset.split(trial.data.train_split).images // count
        self._reads = replace(trial.network.reads, phrases=False, siblings=False)
        self._tables: CaptionTables | None = None
        self._rows: BankRows | None = None
        self._open: Iterator[Batch] | None = None
        self._next_step = -1

    def take(self, step: int) -> Batch:
        """The images of a step (0-based, of the whole attempt), on the device."""
        if self._open is None or step != self._next_step or step % self._steps_per_round == 0:
            batch = self._start(step)
        else:
            batch = next(self._open, None)
        if batch is None:
            raise DataError(
                f"{self._trial.data.path}: split {self._trial.data.train_split} ended before the {self._count} images "
                f"drawn for step {step}; its manifest does not fit its shards, ingest it again."
            )
        self._next_step = step + 1
        return with_one_caption_each(batch).to(self._device)

    def close(self) -> None:
        """Stop reading ahead."""
        close = getattr(self._open, "close", None)
        if close is not None:
            close()
        self._open = None

    def _start(self, step: int) -> Batch | None:
        self.close()
        done_rounds, done = divmod(step, self._steps_per_round)
        training, split = self._trial.training, self._trial.data.train_split
        with undisturbed(self._device):  # as in `TrainingBatches`
            if self._tables is None:
                self._tables = caption_tables(self._dataset, split, self._reads, mirrored=self._reads.swaps_sides)
                self._rows = bank_rows(self._dataset, split, self._reads, device=torch.device("cpu"))
            self._open = iter(
                training_batches(
                    self._dataset, split, batch_size=self._count, batch_unit="images", seed=self._trial.seed,
                    epoch=-1 - done_rounds,  # epochs of the batches count up from 0: another order
                    shuffle_pairs=training.shuffle_pairs, skip_batches=done, workers=training.loader_workers,
                    drop_last=True, reads=self._reads, tables=self._tables, rows=self._rows,
                )
            )
            return next(self._open, None)


def with_one_caption_each(batch: Batch) -> Batch:
    """The images of a batch, each with one of its captions, sampled with torch's global generator."""
    counts = batch.caption_rows.bincount(minlength=len(batch.image_ids))
    first = counts.cumsum(0) - counts
    chosen = first + (torch.rand(len(counts), dtype=torch.float64) * counts).long()
    captions: CaptionInputs = caption_inputs(batch)[chosen]
    longest = int(captions.lengths.max())
    dependencies = captions.dependencies
    return replace(
        batch, captions=captions.tokens[:, :longest], caption_lengths=captions.lengths,
        caption_rows=torch.arange(len(counts)), caption_ids=batch.caption_ids[chosen],
        dependencies=None if dependencies is None else dependencies[:, :longest, :longest],
    )
