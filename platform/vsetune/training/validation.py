"""Encodes a split with a network in batches, and scores its pairs in blocks."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from vsetune.config.component_specs import PairCost
from vsetune.config.sources.trial_inputs import PixelInput
from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.bank_batches import bank_rows
from vsetune.data.batches.reader import evaluation_batches
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import DataError, UsageError
from vsetune.metrics.score_blocks import EmbeddingScores, MatrixScores, Scores
from vsetune.networks.encoded import Encoded, joined
from vsetune.networks.inputs import CaptionInputs
from vsetune.networks.network_base import Network, evaluating
from vsetune.training.device import tower_precision
from vsetune.training.frozen_vectors import frozen_vectors, trained_reads, with_vectors
from vsetune.training.processes import ALONE, Processes

OnBatch = Callable[[], None]

_IMAGES_PER_BATCH = 128
"""Images encoded at once, with all their captions; bounds memory, and changes scores only by rounding."""

_PIXEL_BYTES = 2**25
"""Pixels of the images encoded at once; a few such batches are prefetched, and a CNN takes many times as much."""

_CAPTIONS_PER_GROUP = 256
"""Captions of similar length encoded at once for a network that scores pairs."""


@dataclass(frozen=True)
class EncodedSplit:
    """images: N items, in the order of the split. captions: M items in groups; a network that scores pairs has many
    groups, each of captions of similar length, other networks have one. places: (M,) int64, position of each caption in
    the split. owner: (M,) int64, row of each caption's image, in the order of the split.

    For a part of a split, rows and places count only the images and captions of that part. With several processes,
    captions and places may be only those that this process scores.
    """

    images: Encoded
    captions: list[Encoded]
    places: Tensor
    owner: Tensor


def evenly_spread(chosen: int, images: int) -> list[int]:
    """`chosen` of the images 0, 1, ..., ascending: the middle one of each of `chosen` equal parts. Deterministic.

    DataError for more than there are, or none.
    """
    if not 1 <= chosen <= images:
        raise DataError(
            "VSE-T015", "evaluation.validation_images: got {got}, need 1 to the {images} images of the split",
            got=chosen, images=images,
        )
    return [(2 * number + 1) * images // (2 * chosen) for number in range(chosen)]


def split_scores(
    network: Network, encoded: EncodedSplit, *, trial: TrialSpec, report: Report | None = None,
    processes: Processes = ALONE,
) -> Scores:
    """Scores of every image with every caption, to be read inside `evaluating` with `encode_split`'s items, in every
    process.

    Embeddings are compared in float64 when a block is requested. Pairs are scored here, each once, in float32 like the
    network's parameters, and take 4 bytes per pair: 500 MB for the test split of MS-COCO.
    """
    if network.kind != "score":
        return EmbeddingScores(encoded.images, encoded.captions[0], network.similarity)
    items = encoded.images, encoded.captions, encoded.places
    own = pair_scores(network, *items, cost=trial.network.pair_cost, columns=len(encoded.owner), report=report)
    return MatrixScores(processes.total(own))


def encode_split(
    network: Network, dataset: Dataset, split: str, *, trial: TrialSpec, device: torch.device,
    images: int | None = None, on_batch: OnBatch | None = None, processes: Processes = ALONE,
    every_caption: bool = True,
) -> EncodedSplit:
    """Every image and caption of a split, encoded without gradient, with the network in evaluation mode.

    images: only this many of the split, evenly spaced, with all their captions. on_batch: called after each batch.
    processes: those that encode it together, each its share of the batches. every_caption: False: of a network that
    scores pairs, only the groups of this process.
    """
    reads, info = trained_reads(trial.network), dataset.split(split)
    chosen = None if images is None else evenly_spread(images, info.images)
    share = processes.share(images or info.images, size=images_per_batch(reads.pixels))
    mine: Sequence[int] | None = chosen
    if processes.count > 1:
        mine = (chosen or range(info.images))[share.parts[0].start : share.parts[-1].stop]
    vectors = frozen_vectors(network, dataset, split, trial=trial, device=device)
    encoded, captions = [], []

    def read() -> _Read:
        words, owners = [], []
        with closing(evaluation_batches(
            dataset, split, batch_size=images_per_batch(reads.pixels), reads=reads,
            threads=trial.training.loader_workers, images=mine, rows=bank_rows(dataset, split, reads, device=device),
        )) as batches:
            for batch in batches:
                moved = (batch if vectors is None else with_vectors(batch, vectors)).to(device)
                encoded.append(network.encode_images(moved.images))
                if network.kind == "score":
                    words.append(moved.captions)
                else:
                    captions.append(network.encode_captions(moved.captions))
                owners.append(moved.image_ids[moved.caption_rows])
                if on_batch is not None:
                    on_batch()
        return _Read(words, torch.cat(owners))

    with evaluating(network), tower_precision(trial.training, device):
        found = _of_all(read, processes, has_share=share.count > 0, device=device)
        owner = torch.cat([each.owner for each in found])
        if chosen is not None:
            owner = torch.searchsorted(torch.tensor(chosen, device=device), owner)
        own = share.contributed(joined(encoded))
        items = processes.gathered(own, start=share.start, total=images or info.images)
        if network.kind != "score":
            first = sum(len(each.owner) for each in found[: processes.number])
            own = share.contributed(joined(captions))
            groups = [processes.gathered(own, start=first, total=len(owner))]
            return EncodedSplit(items, groups, torch.arange(len(owner), device=device), owner)
        words = [group for each in found for group in each.words]
        order = torch.cat([group.lengths for group in words]).argsort(stable=True)
        by_length = torch.split(order, _CAPTIONS_PER_GROUP)
        places = by_length if every_caption else by_length[processes.number :: processes.count]
        groups = [network.encode_captions(group) for group in _by_length(words, places)]
    return EncodedSplit(items, groups, torch.cat([owner[:0], *places]), owner)


@dataclass(frozen=True)
class _Read:
    """What a process has read of its share of a split: words, for a network that scores pairs, and the place of each
    caption's image in the split."""

    words: list[CaptionInputs]
    owner: Tensor

    def to(self, device: str | torch.device) -> _Read:
        return _Read([group.to(device) for group in self.words], self.owner.to(device))


def _of_all(
    read: Callable[[], _Read], processes: Processes, *, has_share: bool, device: torch.device
) -> list[_Read]:
    """What the processes have read, in their order. A user's error of one of them is raised in all."""
    if processes.count == 1:
        return [read()]
    try:
        own = read()
        result: _Read | UsageError = own.to("cpu") if has_share else _Read([], own.owner[:0].cpu())
    except UsageError as error:
        result = error
    found = []
    for each in processes.from_all(result):
        if isinstance(each, UsageError):
            raise each
        found.append(each.to(device))
    return found


def images_per_batch(pixels: PixelInput | None) -> int:
    """Number of images encoded at once: fewer if they are large or read in several crops; at least one."""
    if pixels is None:
        return _IMAGES_PER_BATCH
    crops = max(1, pixels.evaluation_crops)
    return max(1, min(_IMAGES_PER_BATCH, _PIXEL_BYTES // (crops * 3 * pixels.size**2)))


def _by_length(groups: Sequence[CaptionInputs], places: Sequence[Tensor]) -> Iterator[CaptionInputs]:
    """The captions at some places, group by group, each group without unnecessary padding. groups: of the whole split.
    """
    most = max(group.tokens.shape[1] for group in groups)
    lengths = torch.cat([group.lengths for group in groups])
    tokens = torch.cat([pad(group.tokens, (0, most - group.tokens.shape[1])) for group in groups])
    dependencies = [
        pad(group.dependencies, (0, most - group.tokens.shape[1]) * 2) for group in groups
        if group.dependencies is not None
    ]
    joins = torch.cat(dependencies) if dependencies else None
    for chosen in places:
        longest = int(lengths[chosen].max())
        yield CaptionInputs(
            tokens[chosen, :longest], lengths[chosen], None if joins is None else joins[chosen, :longest, :longest],
        )


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
    budget_bytes: int = SCORING_BYTES, columns: int | None = None, report: Report | None = None,
) -> Tensor:
    """(N, M) scores, float32 or wider like the items. places: (captions,) column of each caption, group after group.
    columns: M, where there are more than these captions; the other columns are 0.

    Captions of a group should have similar lengths: each takes the time of the longest. report: called after each
    block.
    """
    total = sum(map(len, captions))
    scores = images.vectors.new_zeros(len(images), total if columns is None else columns)
    first = done = 0
    for group in captions:
        numbers = cost(regions=images.vectors.shape[1], words=group.vectors.shape[1]).numbers
        rows, wide = block_shape(len(images), len(group), pairs=int(budget_bytes / (4 * numbers)))
        for start in range(0, len(group), wide):
            part = group[start : start + wide]
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
