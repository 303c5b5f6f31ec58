"""A split encoded by a network in batches, and its recalls, ranked in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from vsetune.config.sources.network_reads import NetworkReads
from vsetune.config.sources.pixel_input import PixelInput
from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.batch import Batch
from vsetune.data.batches.prefetch import Prefetched
from vsetune.data.batches.reader import evaluation_batches
from vsetune.data.stored.dataset import Dataset
from vsetune.metrics import EmbeddingScores, MatrixScores, RetrievalScores, Scores
from vsetune.metrics.recall import owner_scores
from vsetune.networks.encoded import Encoded, joined
from vsetune.networks.inputs import CaptionInputs
from vsetune.networks.network_base import Network
from vsetune.scoring.device import tower_precision
from vsetune.scoring.network_inputs import caption_inputs, image_inputs
from vsetune.scoring.pair_scores import Report, pair_scores

OnBatch = Callable[[], None]
Enough = Callable[[], bool]

_IMAGES_PER_BATCH = 128
"""Images encoded at once, with all their captions; bounds memory, never changes a score beyond rounding."""

_PIXEL_BYTES = 2**25
"""Pixels of the images encoded at once; a few such batches are made ahead, and a CNN takes many times as much."""

_CAPTIONS_PER_GROUP = 256
"""Captions of similar length encoded at once for a network that scores pairs."""


@dataclass(frozen=True)
class EncodedSplit:
    """images: N items, in the order of the split. captions: M items in groups; a network that scores pairs has many,
    each of captions of similar length, others have one. places: (M,) int64, where in the split each of them stands.
    owner: (M,) int64, row of each caption's image, in the order of the split.
    """

    images: Encoded
    captions: list[Encoded]
    places: Tensor
    owner: Tensor


@contextmanager
def evaluating(network: Network) -> Iterator[None]:
    """Evaluation mode and no gradient; afterwards the network is in training mode if it was before."""
    was_training = network.training
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        network.train(was_training)


def score_split(
    network: Network, dataset: Dataset, split: str, *, trial: TrialSpec, device: torch.device,
    report: Report | None = None, on_batch: OnBatch | None = None,
) -> RetrievalScores:
    """Scores of the whole split. report: called with pairs scored and pairs in all, by networks that score pairs.

    on_batch: called after each batch that was encoded. Raises NumericError if any similarity is not finite.
    """
    with evaluating(network):
        encoded = encode_split(network, dataset, split, trial=trial, device=device, on_batch=on_batch)
        return owner_scores(split_scores(network, encoded, trial=trial, report=report), encoded.owner)


def split_scores(
    network: Network, encoded: EncodedSplit, *, trial: TrialSpec, report: Report | None = None
) -> Scores:
    """Scores of every image with every caption, to be read inside `evaluating` with `encode_split`'s items.

    Embeddings are compared when a block is asked for, in float64. Pairs are scored here, each once, in float32 as the
    network's parameters are; 4 bytes per pair are held, 500 MB for the test split of MS-COCO.
    """
    if network.kind != "score":
        return EmbeddingScores(encoded.images, encoded.captions[0], network.similarity)
    items = encoded.images, encoded.captions, encoded.places
    return MatrixScores(pair_scores(network, *items, cost=trial.network.pair_cost, report=report))


def encode_split(
    network: Network, dataset: Dataset, split: str, *, trial: TrialSpec, device: torch.device,
    on_batch: OnBatch | None = None, enough: Enough | None = None,
) -> EncodedSplit:
    """Every image and caption of a split, without gradient, the network in evaluation mode.

    on_batch: called after each batch. enough: asked after each whether the others are left out, to time a part.
    """
    images, captions, words, owners = [], [], [], []
    all_batches = split_batches(dataset, split, reads=trial.network.reads, threads=trial.training.loader_workers)
    with evaluating(network), tower_precision(trial.training, device), all_batches as batches:
        for batch in batches:
            moved = batch.to(device)
            images.append(network.encode_images(image_inputs(moved)))
            if network.kind == "score":
                words.append(caption_inputs(moved))
            else:
                captions.append(network.encode_captions(caption_inputs(moved)))
            owners.append(moved.image_ids[moved.caption_rows])
            if on_batch is not None:
                on_batch()
            if enough is not None and enough():
                break
        owner = torch.cat(owners)
        if network.kind != "score":
            return EncodedSplit(joined(images), [joined(captions)], torch.arange(len(owner), device=device), owner)
        places = torch.cat([group.lengths for group in words]).argsort(stable=True)
        groups = [network.encode_captions(group) for group in _by_length(words, places)]
    return EncodedSplit(joined(images), groups, places, owner)


def split_batches(dataset: Dataset, split: str, *, reads: NetworkReads, threads: int) -> Prefetched[Batch]:
    """A split in order, with all that a network reads. threads: that decode photographs."""
    return evaluation_batches(
        dataset, split, batch_size=images_per_batch(reads.pixels), reads=reads, threads=threads
    )


def images_per_batch(pixels: PixelInput | None) -> int:
    """Images encoded at once: fewer of large ones, and of those that are read in several crops; at least one."""
    if pixels is None:
        return _IMAGES_PER_BATCH
    crops = max(1, pixels.evaluation_crops)
    return max(1, min(_IMAGES_PER_BATCH, _PIXEL_BYTES // (crops * 3 * pixels.size**2)))


def _by_length(groups: Sequence[CaptionInputs], places: Tensor) -> Iterator[CaptionInputs]:
    """The captions of all groups in the order of places, shortest first, without padding that no caption needs."""
    most = max(group.tokens.shape[1] for group in groups)
    lengths = torch.cat([group.lengths for group in groups])
    tokens = torch.cat([pad(group.tokens, (0, most - group.tokens.shape[1])) for group in groups])
    dependencies = [
        pad(group.dependencies, (0, most - group.tokens.shape[1]) * 2) for group in groups
        if group.dependencies is not None
    ]
    joins = torch.cat(dependencies) if dependencies else None
    for chosen in torch.split(places, _CAPTIONS_PER_GROUP):
        longest = int(lengths[chosen].max())
        yield CaptionInputs(
            tokens[chosen, :longest], lengths[chosen], None if joins is None else joins[chosen, :longest, :longest],
        )
