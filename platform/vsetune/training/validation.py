"""A split scored by a network: encode it in batches, rank it in blocks."""

from __future__ import annotations

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


def score_split(
    network: Network, dataset: Dataset, split: str, *, training: TrainingSpec, device: torch.device
) -> RetrievalScores:
    """Scores of the whole split. The network is in training mode afterwards if it was before.

    Raises NumericError if any similarity is not finite.
    """
    was_training = network.training
    network.eval()
    try:
        with torch.no_grad():
            return _score(network, dataset, split, training, device)
    finally:
        network.train(was_training)


def _score(
    network: Network, dataset: Dataset, split: str, training: TrainingSpec, device: torch.device
) -> RetrievalScores:
    images, captions, owners = [], [], []
    with evaluation_batches(dataset, split, batch_size=_IMAGES_PER_BATCH) as batches:
        for batch in batches:
            moved = batch.to(device)
            image_part, caption_part = _encode(network, moved, training, device)
            images.append(image_part)
            captions.append(caption_part)
            owners.append(moved.image_ids[moved.caption_rows])
    return retrieval_scores(
        torch.cat(images), torch.cat(captions), torch.cat(owners), similarity=network.similarity
    )


def _encode(
    network: Network, batch: Batch, training: TrainingSpec, device: torch.device
) -> tuple[Tensor, Tensor]:
    with tower_precision(training, device):
        images = network.encode_images(batch.image_features, batch.region_counts)
        captions = network.encode_captions(batch.captions, batch.caption_lengths)
    return images.float(), captions.float()
