"""A split encoded by a network in batches, and its recalls, ranked in blocks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vsetune.config.training import TrainingSpec
from vsetune.data.batch import Batch
from vsetune.data.dataset import Dataset
from vsetune.data.reader import evaluation_batches
from vsetune.metrics import RetrievalScores, retrieval_scores
from vsetune.networks import Network
from vsetune.training.device import tower_precision

_IMAGES_PER_BATCH = 128
"""Images encoded at once, with all their captions; bounds memory, never changes a score beyond rounding."""


@dataclass(frozen=True)
class EncodedSplit:
    """images: (N, D). captions: (M, D). owner: (M,) int64, row of each caption's image. In the order of the split."""

    images: Tensor
    captions: Tensor
    owner: Tensor


def score_split(
    network: Network, dataset: Dataset, split: str, *, training: TrainingSpec, device: torch.device
) -> RetrievalScores:
    """Scores of the whole split. The network is in training mode afterwards if it was before.

    Raises NumericError if any similarity is not finite.
    """
    encoded = encode_split(network, dataset, split, training=training, device=device)
    with torch.no_grad():
        return retrieval_scores(encoded.images, encoded.captions, encoded.owner, similarity=network.similarity)


@torch.no_grad()
def encode_split(
    network: Network, dataset: Dataset, split: str, *, training: TrainingSpec, device: torch.device
) -> EncodedSplit:
    """Every image and caption of a split in the joint space, without gradient, the network in evaluation mode."""
    was_training = network.training
    network.eval()
    images, captions, owners = [], [], []
    try:
        with evaluation_batches(dataset, split, batch_size=_IMAGES_PER_BATCH) as batches:
            for batch in batches:
                moved = batch.to(device)
                image_part, caption_part = _encode(network, moved, training, device)
                images.append(image_part)
                captions.append(caption_part)
                owners.append(moved.image_ids[moved.caption_rows])
    finally:
        network.train(was_training)
    return EncodedSplit(torch.cat(images), torch.cat(captions), torch.cat(owners))


def _encode(
    network: Network, batch: Batch, training: TrainingSpec, device: torch.device
) -> tuple[Tensor, Tensor]:
    with tower_precision(training, device):
        images = network.encode_images(batch.image_features, batch.region_counts)
        captions = network.encode_captions(batch.captions, batch.caption_lengths)
    return images.float(), captions.float()
