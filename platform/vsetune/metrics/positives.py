"""Matching captions and images: the owner of each caption, or a longer list of relevant pairs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vsetune.errors import DataError
from vsetune.metrics.arguments import Arguments
from vsetune.metrics.score_blocks import Scores, bands

_IMAGES_PER_BAND = 64
"""Images scored at once against all their captions: 1.3 % of all pairs for 5,000 images. Smaller bands score fewer
pairs, but on busy processors many small products take longer."""


@dataclass(frozen=True)
class Positives:
    """The P matching pairs, each once, sorted by image, then caption.

    image, caption: (P,) int64, 0-based. shape: images, captions. An image or a caption may have no pair; it is then
    left out as a query but stays as a candidate.
    """

    image: Tensor
    caption: Tensor
    shape: tuple[int, int]

    @classmethod
    def of_owner(cls, owner: Tensor, *, images: int, captions: int) -> Positives:
        """One image per caption. owner: (captions,) int64, row of each caption's image; every image has a caption.

        Raises DataError if an image has no caption or an owner points outside.
        """
        check_owner(owner, images=images, captions=captions)
        image, caption = owner.sort(stable=True)
        return cls(image, caption, (images, captions))

    @classmethod
    def of_pairs(cls, pairs: Tensor, *, images: int, captions: int) -> Positives:
        """Any list of relevant pairs. pairs: (P, 2) int64, image and caption; repeated pairs count once.

        Raises DataError if the list is empty, of another shape or type, or points outside.
        """
        given = Arguments("relevance", DataError)
        given.shape("pairs", pairs, "(pairs, 2), at least one", fits=pairs.ndim == 2 and pairs.shape[1] == 2)
        image = given.integers("image indices", pairs[:, 0], count=len(pairs), below=images)
        caption = given.integers("caption indices", pairs[:, 1], count=len(pairs), below=captions)
        place = (image * captions + caption).sort().values
        place = place[torch.cat([place.new_ones(1, dtype=torch.bool), place[1:] != place[:-1]])]
        return cls(place // captions, place % captions, (images, captions))

    def scores(self, scores: Scores) -> Tensor:
        """(P,) scores of the pairs, in few narrow blocks."""
        edges = torch.tensor([band.start for band in bands(self.shape[0], _IMAGES_PER_BAND)] + [self.shape[0]])
        offsets = torch.searchsorted(self.image, edges.to(self.image.device)).tolist()
        values = []
        for band, first, last in zip(bands(self.shape[0], _IMAGES_PER_BAND), offsets[:-1], offsets[1:], strict=True):
            if first == last:
                continue
            block = scores.block(band, self.caption[first:last])
            values.append(block.gather(0, (self.image[first:last] - band.start)[None, :])[0])
        return torch.cat(values)

    def inside(self, images: slice, captions: slice) -> tuple[Tensor, Tensor]:
        """(row, column) within a block of scores, of the pairs inside the block."""
        here = (self.image >= images.start) & (self.image < images.stop)
        here &= (self.caption >= captions.start) & (self.caption < captions.stop)
        return self.image[here] - images.start, self.caption[here] - captions.start


def check_owner(owner: Tensor, *, images: int, captions: int) -> None:
    """Refuse an owner vector that leaves an image without caption or points outside. Raises DataError."""
    if images == 0 or captions == 0:
        raise DataError(
            "VSE-M007", "retrieval: got {images} images and {captions} captions, need at least one of each",
            images=images, captions=captions,
        )
    Arguments("retrieval", DataError).integers("owners", owner, count=captions, below=images)
    without = int((torch.bincount(owner, minlength=images) == 0).sum())
    if without:
        raise DataError(
            "VSE-M008", "retrieval: got {images} images without a caption, need at least one caption per image",
            images=without,
        )
