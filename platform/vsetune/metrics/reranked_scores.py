"""Retrieval in two stages: the first stage scores every pair and proposes some, the second stage re-ranks these.

A pair is proposed when its caption is among the first `top` of its image, or its image among the first `top` of its
caption, by the scores of the first stage. Candidates tied with the last of these are proposed too, so the order of
candidates and blocks does not matter; a first stage with many ties proposes more. Both directions re-rank the same
pairs, those proposed by either direction.

A query ranks proposed candidates by the scores of the second stage, and behind them the others by the scores of the
first stage. No query loses a candidate, and every rank is defined. If `top` is the number of images, every pair is
proposed, and the ranks are those of the second stage alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vsetune.errors import DataError
from vsetune.metrics.score_blocks import BLOCK_SHAPE, Part, Scores, finite_blocks

RERANKING_VERSION = 1
"""Raise it when the same two stages give other ranks; part of the protocol stored with a curve."""

_BAND = 2.0**33
"""An offset larger than the distance of any two float32 numbers in `_places`."""


@torch.no_grad()
def proposed_pairs(scores: Scores, top: int, *, block_shape: tuple[int, int] = BLOCK_SHAPE) -> Tensor:
    """(N, M) bool: the pairs that a first stage proposes. Every score is computed twice.

    block_shape: images and captions scored at once; affects memory only.
    Raises DataError unless top is from 1 to N, NumericError if any score is not finite.
    """
    check_top(top, images=scores.shape[0])
    by_image, by_caption = _lowest_of_top(scores, top, block_shape)
    proposed = torch.zeros(scores.shape, dtype=torch.bool, device=by_image.device)
    for images, captions, block in finite_blocks(scores, block_shape, where="first stage"):
        is_near = block >= by_image[images, None]
        proposed[images, captions] = is_near.logical_or_(block >= by_caption[None, captions])
    return proposed


def check_top(top: int, *, images: int) -> None:
    """Raise DataError unless top is from 1 to the number of images."""
    if not 1 <= top <= images:
        raise DataError(f"re-ranking: got top {top}, need 1 to the {images} images that are ranked; choose fewer")


class RerankedScores:
    """Scores in the order of the two stages: `Scores` for metrics that use only their order and ties.

    Blocks are float64 and contain places on a common scale, not similarities: proposed pairs ordered by `decided`,
    below them all others ordered by `first`. Scores of both stages are read as float32; their order and ties are exact.
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
    """(N,) and (M,): the `top`-th highest score of each image and of each caption."""
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
    """Integers in float64 with the order and ties of float32 scores; non-finite scores stay as they are.

    The bits of float32 numbers order like integers after those of negative numbers are flipped.
    """
    single = scores.float() + 0.0  # adding 0 makes -0 and 0 the same bits
    bits = single.view(torch.int32)
    places = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).double()
    return torch.where(torch.isfinite(single), places, single.double())
