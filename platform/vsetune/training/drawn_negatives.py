"""The hardest of the images and captions that are sampled from the training split beside a batch."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from vsetune.config.study.training import TrainingSpec
from vsetune.data.batches.batch import Batch
from vsetune.losses.loss_base import Memory
from vsetune.networks.encoded import Encoded
from vsetune.networks.network_base import Network, evaluating
from vsetune.training.device import tower_precision

_NEVER = float("-inf")


@dataclass(frozen=True)
class Miner:
    """Finds the `hardest` sampled captions for each image of a batch, and the hardest sampled images for each caption.

    The search runs in evaluation mode, without gradient; the selected pairs are encoded and scored once more like the
    batch, in training mode. An item of the query's own image is never selected.
    """

    network: Network
    training: TrainingSpec
    hardest: int

    def hardest_of(self, drawn: Batch, batch: Batch, images: Encoded, captions: Encoded) -> Memory:
        """Scores with gradient, minus infinity where a pair is not selected. drawn: one caption per image, in the same
        order. images, captions: of the batch, encoded in training mode."""
        caption_scores, image_scores = self._scores(drawn, batch)
        own = batch.image_ids[batch.caption_rows]
        caption_scores = caption_scores.masked_fill(batch.image_ids[:, None] == drawn.image_ids, _NEVER)
        image_scores = image_scores.masked_fill(drawn.image_ids[:, None] == own, _NEVER)
        rows, kept_captions = self._kept(caption_scores)
        columns, kept_images = self._kept(image_scores.T)
        of_images = self._with_captions(images, drawn, rows, kept_captions)
        of_captions = self._with_images(captions, drawn, kept_images, columns)
        return Memory(
            caption_similarity=_spread(caption_scores, (rows, kept_captions), of_images),
            image_similarity=_spread(image_scores, (kept_images, columns), of_captions),
            image_ids=drawn.image_ids,
        )

    def _scores(self, drawn: Batch, batch: Batch) -> tuple[Tensor, Tensor]:
        """(N, P) scores of the images with the sampled captions, (P, M) of the sampled images with the captions."""
        with evaluating(self.network):
            with self._precision(batch):
                images = self.network.encode_images(batch.images)
                captions = self.network.encode_captions(batch.captions)
            with_captions, with_images = [], []
            for some in torch.split(torch.arange(len(drawn.image_ids), device=images.device), self.training.batch_size):
                with self._precision(batch):
                    drawn_captions = self.network.encode_captions(drawn.captions[some])
                    drawn_images = self.network.encode_images(drawn.images[some])
                with_captions.append(self.network.similarity(images, drawn_captions))
                with_images.append(self.network.similarity(drawn_images, captions))
        return torch.cat(with_captions, dim=1), torch.cat(with_images, dim=0)

    def _kept(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """(Q,) rows and (Q,) columns of the highest scores of every row; fewer where a row has fewer. A NaN is
        selected."""
        best = scores.topk(min(self.hardest, scores.shape[1]), dim=1)
        row, place = (best.values != _NEVER).nonzero(as_tuple=True)
        return row, best.indices[row, place]

    def _with_captions(self, images: Encoded, drawn: Batch, rows: Tensor, columns: Tensor) -> Tensor:
        """(Q,) scores of images of the batch at rows (Q,) with sampled captions at columns (Q,)."""
        if len(rows) == 0:
            return images.vectors.new_zeros(0)
        kept, place = torch.unique(columns, return_inverse=True)
        with self._precision(drawn):
            captions = self.network.encode_captions(drawn.captions[kept])
        return self.network.scores_of_pairs(images, captions, rows, place)

    def _with_images(self, captions: Encoded, drawn: Batch, rows: Tensor, columns: Tensor) -> Tensor:
        """(Q,) scores of sampled images at rows (Q,) with captions of the batch at columns (Q,)."""
        if len(rows) == 0:
            return captions.vectors.new_zeros(0)
        kept, place = torch.unique(rows, return_inverse=True)
        with self._precision(drawn):
            images = self.network.encode_images(drawn.images[kept])
        return self.network.scores_of_pairs(images, captions, place, columns)

    def _precision(self, batch: Batch) -> AbstractContextManager[object]:
        return tower_precision(self.training, batch.image_ids.device)


def _spread(like: Tensor, places: tuple[Tensor, Tensor], scores: Tensor) -> Tensor:
    """The scores (Q,) at these places and minus infinity elsewhere; of the shape of `like`."""
    return scores.new_full(like.shape, _NEVER).index_put(places, scores)
