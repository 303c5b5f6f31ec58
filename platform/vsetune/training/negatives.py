"""How many different hard negatives a batch has (#ImEmbs and #DesEmbs of LSEH), counted for some of the batches."""

from __future__ import annotations

from vsetune.config.study.training import TrainingSpec
from vsetune.data.batches.batch import Batch
from vsetune.losses.loss_base import LossOutput
from vsetune.metrics.hard_negatives import unique_hard_negatives

_LOOK_EVERY = 10
"""Steps between two counts: counting reads numbers back from the device, and a step should not wait for that."""


class NegativeSampler:
    """Counts of every tenth full batch after a validation, the first one included.

    Short batches are left out: their counts have another range. Losses that select no single hardest negative
    (softmax, top-f above f = 0) give the same numbers under names that start with `proxy_`.
    """

    def __init__(self, training: TrainingSpec, *, full_batches: int = 0) -> None:
        """full_batches: number since the validation, counted by the execution that this one continues."""
        self._batch_size = training.batch_size
        self.full_batches = full_batches

    def look(self, batch: Batch, output: LossOutput) -> dict[str, float]:
        """Counts by name, or nothing for most batches."""
        if len(batch.image_ids) < self._batch_size or output.selection is None:
            return {}
        self.full_batches += 1
        if (self.full_batches - 1) % _LOOK_EVERY:
            return {}
        selection = output.selection
        counts = unique_hard_negatives(
            selection.scores, selection.negatives, active_images=selection.active_images,
            active_captions=selection.active_captions,
        )
        prefix = "proxy_unique_negatives" if selection.is_proxy else "unique_negatives"
        return {f"{prefix}_{name}": value for name, value in counts.as_dict().items()}
