"""Unique hard negatives of a batch (#ImEmbs and #DesEmbs of LSEH).

Few different negatives for many queries indicate hubs; a collapsed network selects a single negative.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from vsetune.errors import NumericError


@dataclass(frozen=True)
class UniqueHardNegatives:
    """Counts of one batch. captions: different captions selected by image queries (#DesEmbs). images: different images
    selected by caption queries (#ImEmbs). active_*: the same over queries with a positive hinge only, None for losses
    without one. image_queries, caption_queries: number of queries with a positive hinge, None likewise.
    """

    captions: int
    images: int
    active_captions: int | None
    active_images: int | None
    image_queries: int | None
    caption_queries: int | None

    def as_dict(self) -> dict[str, float]:
        """The known counts by name."""
        return {name: float(count) for name, count in asdict(self).items() if count is not None}


@torch.no_grad()
def unique_hard_negatives(
    scores: Tensor, negatives: Tensor, *, active_images: Tensor | None, active_captions: Tensor | None
) -> UniqueHardNegatives:
    """Count the different hardest negatives of a batch, before any hinge.

    scores: (N, M), the loss's own score. negatives: (N, M) bool; queries without a negative select nothing.
    active_images: (N,) bool, image queries whose hinge is positive, or None; active_captions: (M,) likewise.
    Raises NumericError if the score of a negative is not finite: every query would select it, or none.
    """
    broken = int((~torch.isfinite(scores) & negatives).sum())
    if broken:
        count = int(negatives.sum())
        raise NumericError(
            "VSE-M001", "{where}: got {broken} of {count} {what} that are not finite, need all finite; the network has "
            "diverged, lower training.learning_rate", where="hard negatives", broken=broken, count=count, what="scores",
        )
    captions, active_caption_count = _selected(scores, negatives, active_images)
    images, active_image_count = _selected(scores.T, negatives.T, active_captions)
    return UniqueHardNegatives(
        captions=captions, images=images, active_captions=active_caption_count, active_images=active_image_count,
        image_queries=None if active_images is None else int(active_images.sum()),
        caption_queries=None if active_captions is None else int(active_captions.sum()),
    )


def _selected(scores: Tensor, negatives: Tensor, active: Tensor | None) -> tuple[int, int | None]:
    hardest = scores.masked_fill(~negatives, float("-inf")).argmax(dim=1)
    choosing = negatives.any(dim=1)
    everything = _different(hardest[choosing])
    return everything, None if active is None else _different(hardest[choosing & active])


def _different(indices: Tensor) -> int:
    return int((torch.bincount(indices) > 0).sum())
