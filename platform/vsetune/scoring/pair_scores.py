"""Scores of a network without embeddings: every image with every caption, each pair once, in bounded blocks."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from vsetune.networks.encoded import Encoded, joined
from vsetune.networks.network_base import Network
from vsetune.networks.network_spec import PairCost

_log = logging.getLogger(__name__)

SCORING_BYTES = 2**30
"""Memory limit of a block of pairs besides the encoded items and the scores, which are complete (derivation: decision
0023). A block has at least one pair."""

_LOG_EVERY_S = 30.0
_LONGEST_OF_SHELF = 1.5
"""Longest group of a shelf relative to its shortest; every caption takes the time of the longest."""

Report = Callable[[int, int], None]
"""Pairs scored so far, pairs in all."""


class CostOfPair(Protocol):
    """`NetworkSpec.pair_cost`."""

    def __call__(self, *, regions: int, words: int) -> PairCost:
        """Cost of an image with this many regions and a caption with this many words."""


def pair_scores(
    network: Network, images: Encoded, captions: Sequence[Encoded], places: Tensor, *, cost: CostOfPair,
    budget_bytes: int = SCORING_BYTES, report: Report | None = None,
) -> Tensor:
    """(N, M) scores, float32 or wider like the items. places: (M,) column of each caption, group after group.

    Captions of a group should have similar lengths: each takes the time of the longest. report: called after each
    block.
    """
    total = sum(map(len, captions))
    scores = images.vectors.new_empty(len(images), total)
    first = done = 0
    for group in captions:
        numbers = cost(regions=images.vectors.shape[1], words=group.vectors.shape[1]).numbers
        rows, columns = block_shape(len(images), len(group), pairs=int(budget_bytes / (4 * numbers)))
        for start in range(0, len(group), columns):
            part = group[start : start + columns]
            place = places[first + start : first + start + len(part)]
            for row in range(0, len(images), rows):
                some = images[row : row + rows]
                scores[row : row + rows].index_copy_(1, place, network.similarity(some, part))
                done += len(some) * len(part)
                if report is not None:
                    report(done, len(images) * total)
        first += len(group)
    return scores


def proposed_pair_scores(
    network: Network, images: Encoded, captions: Sequence[Encoded], places: Tensor, proposed: Tensor, *,
    cost: CostOfPair, budget_bytes: int = SCORING_BYTES, report: Report | None = None,
) -> Tensor:
    """(N, M) scores as in `pair_scores`, of the proposed pairs alone; 0 elsewhere. proposed: (N, M) bool, some True.

    One image at a time is compared with several of its captions: captions of similar length, joined to a shelf for this
    image.
    """
    total, done = int(proposed.sum()), 0
    scores = images.vectors.new_zeros(proposed.shape)
    for shelf, place in _shelves(captions, places):
        numbers = cost(regions=images.vectors.shape[1], words=shelf.vectors.shape[1]).numbers
        pairs = max(1, int(budget_bytes / (4 * numbers)))
        here = proposed[:, place]
        columns = here.nonzero()[:, 1]  # image after image
        for image, wanted in enumerate(torch.split(columns, here.sum(dim=1).tolist())):
            for some in torch.split(wanted, pairs) if len(wanted) else ():
                scores[image].index_copy_(0, place[some], network.similarity(images[image : image + 1], shelf[some])[0])
                done += len(some)
                if report is not None:
                    report(done, total)
    return scores


def _shelves(captions: Sequence[Encoded], places: Tensor) -> Iterator[tuple[Encoded, Tensor]]:
    """Neighbouring groups of similar length joined, each with the columns of its captions."""
    first = start = 0
    for end in range(1, len(captions) + 1):
        shortest = captions[start].vectors.shape[1]
        if end < len(captions) and captions[end].vectors.shape[1] <= _LONGEST_OF_SHELF * shortest:
            continue
        shelf = joined(captions[start:end])
        yield shelf, places[first : first + len(shelf)]
        first, start = first + len(shelf), end


def block_shape(images: int, captions: int, *, pairs: int) -> tuple[int, int]:
    """Images and captions of a block of at most this many pairs (at least one), about equally many of each."""
    columns = min(captions, max(1, math.isqrt(pairs)))
    rows = min(images, max(1, pairs // columns))
    return rows, min(captions, max(1, pairs // rows))


class LoggedProgress:
    """A `Report` that logs the progress of scoring at intervals; short scorings log nothing."""

    def __init__(self, where: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._where, self._clock = where, clock
        self._last = clock()

    def __call__(self, done: int, total: int) -> None:
        now = self._clock()
        if now - self._last >= _LOG_EVERY_S:
            self._last = now
            _log.info("%s: scored %.0f %% of %d pairs", self._where, 100 * done / total, total)
