"""Two stages of retrieval: a first one scores every pair and proposes, a second one decides among what was proposed.

A pair is proposed when its caption is among the first `top` of its image, or its image among the first `top` of its
caption, by the scores of the first stage. Who ties with the last of these is proposed too, so neither the order of
candidates nor that of blocks matters; a first stage with many ties proposes more. Both directions rank the same pairs:
those that either of them has proposed.

A query ranks what was proposed by the second stage's scores, and behind all of it the rest by the first stage's. So no
query loses a candidate, and every rank is defined. With `top` at the number of images every pair is proposed, and the
ranks are those of the second stage alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vsetune.errors import DataError
from vsetune.metrics.score_blocks import BLOCK_SHAPE, Part, Scores, finite_blocks

RERANKING_VERSION = 1
"""Raise it when the same two stages give other ranks; belongs in the protocol stored with a curve."""

_BAND = 2.0**33
"""Further than any two float32 numbers are apart in `_places`."""


@torch.no_grad()
def proposed_pairs(scores: Scores, top: int, *, block_shape: tuple[int, int] = BLOCK_SHAPE) -> Tensor:
    """(N, M) bool: the pairs that a first stage proposes. Every score is computed twice.

    block_shape: images and captions scored at once; a matter of memory only.
    DataError unless top is from 1 to N. NumericError if any score is not finite.
    """
    check_top(top, images=scores.shape[0])
    by_image, by_caption = _lowest_of_top(scores, top, block_shape)
    proposed = torch.zeros(scores.shape, dtype=torch.bool, device=by_image.device)
    for images, captions, block in finite_blocks(scores, block_shape, where="first stage"):
        is_near = block >= by_image[images, None]
        proposed[images, captions] = is_near.logical_or_(block >= by_caption[None, captions])
    return proposed


def check_top(top: int, *, images: int) -> None:
    """DataError unless so many can be proposed among so many images."""
    if not 1 <= top <= images:
        raise DataError(f"re-ranking: got top {top}, need 1 to the {images} images that are ranked; choose fewer")


class RerankedScores:
    """Scores in the order that two stages give: `Scores` for every metric that reads their order and ties alone.

    Blocks are float64 and hold places on a common scale, not similarities: those of proposed pairs by `decided`, below
    them all others by `first`. Scores of either stage count as float32, and their order and ties are kept exactly.
    """

    def __init__(self, first: Scores, proposed: Tensor, decided: Tensor) -> None:
        """proposed: (N, M) bool. decided: (N, M) scores of the second stage, read where proposed."""
        self.shape = first.shape
        self._first, self._proposed, self._decided = first, proposed, decided

    def block(self, images: Part, captions: Part) -> Tensor:
        ahead = self._proposed[images][:, captions]
        decided = _places(self._decided[images][:, captions]) + _BAND
        return torch.where(ahead, decided, _places(self._first.block(images, captions)))


def _lowest_of_top(scores: Scores, top: int, block_shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """(N,) and (M,): the score of the last of the first `top` of each image and of each caption."""
    by_image: dict[int, Tensor] = {}
    by_caption: dict[int, Tensor] = {}
    for images, captions, block in finite_blocks(scores, block_shape, where="first stage"):
        _keep_highest(by_image, images.start, block, top)
        _keep_highest(by_caption, captions.start, block.T, top)
    return _last(by_image), _last(by_caption)


def _keep_highest(found: dict[int, Tensor], start: int, block: Tensor, top: int) -> None:
    """found: by the first query of a band, (queries, up to top) highest scores so far, highest first."""
    seen = block if start not in found else torch.cat([found[start], block], dim=1)
    found[start] = seen.topk(min(top, seen.shape[1]), dim=1).values


def _last(found: dict[int, Tensor]) -> Tensor:
    return torch.cat([highest[:, -1] for highest in found.values()])


def _places(scores: Tensor) -> Tensor:
    """Integers in float64 that order and tie as float32 scores do; what is not finite stays so.

    The bits of a float32 order like an integer once those of negative numbers are flipped.
    """
    single = scores.float() + 0.0  # adding 0 makes -0 and 0 the same bits
    bits = single.view(torch.int32)
    places = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).double()
    return torch.where(torch.isfinite(single), places, single.double())
