"""Inputs of TAGS's transformer: a vector for every word and for every region with its place in the image.

Letters of shapes: N images, M captions, R regions, L words, D width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vsetune.errors import DataError
from vsetune.networks.tags.joint_encoder import EncoderShape, bert_embedding, bert_linear

_PLACE = 7
_TYPES = 2
_SPREAD = 0.02


class TokenInputs(nn.Module):
    """A word: LN(word + position + type 0). A region: LN(LN(W x) + LN(V p) + type 1), p its place, see `box_places`."""

    def __init__(self, shape: EncoderShape, *, width: int, vocabulary_size: int, longest: int) -> None:
        super().__init__()
        size = shape.size
        self.words = bert_embedding(vocabulary_size, size)
        self.positions = bert_embedding(longest, size)
        self.types = bert_embedding(_TYPES, size)
        self.word_norm = nn.LayerNorm(size, eps=shape.epsilon)
        self.region_map = bert_linear(width, size, size=size)
        # a region of zeros: without a bias its LayerNorm divides by 1e-6, and so does the gradient
        nn.init.normal_(self.region_map.bias, std=_SPREAD)
        self.region_norm = nn.LayerNorm(size, eps=shape.epsilon)
        self.place_map = bert_linear(_PLACE, size, size=size)
        self.place_norm = nn.LayerNorm(size, eps=shape.epsilon)
        self.image_norm = nn.LayerNorm(size, eps=shape.epsilon)

    def of_words(self, tokens: Tensor) -> Tensor:
        """(M, L, D). tokens: (M, L). DataError for captions longer than there are positions."""
        length, longest = tokens.shape[1], self.positions.num_embeddings
        if length > longest:
            raise DataError(f"network tags: reads at most {longest} ids, got a caption of {length}; cut the captions")
        return self._word(self.words(tokens) + self.positions.weight[:length])

    def of_ids(self, tokens: Tensor, places: Tensor) -> Tensor:
        """(..., D) of single words. tokens, places: (...) ids and where they stand in a caption that can be read."""
        return self._word(self.words(tokens) + self.positions(places))

    def _word(self, embedded: Tensor) -> Tensor:
        out: Tensor = self.word_norm(embedded + self.types.weight[0])
        return out

    def of_regions(self, features: Tensor, boxes: Tensor | None) -> Tensor:
        """(N, R, D). features: (N, R, width); boxes: (N, R, 4), or None where the regions are a square grid."""
        found = boxes if boxes is not None else grid_boxes(features.shape[1]).to(features)[None]
        placed = self.place_norm(self.place_map(box_places(found.to(features))))
        out: Tensor = self.image_norm(self.region_norm(self.region_map(features)) + placed + self.types.weight[1])
        return out


def box_places(boxes: Tensor) -> Tensor:
    """(..., 7): x1, y1, x2, y2, width, height, area of boxes (..., 4), all as shares of the image."""
    sides = boxes[..., 2:] - boxes[..., :2]
    return torch.cat((boxes, sides, sides.prod(dim=-1, keepdim=True)), dim=-1)


def grid_boxes(regions: int) -> Tensor:
    """(R, 4) float64 boxes of the cells of a square grid, row by row. DataError when R is no square."""
    side = math.isqrt(regions)
    if side**2 != regions:
        raise DataError(
            f"network tags: {regions} regions without boxes are no square grid; ingest features with boxes, or a grid "
            "such as 6 x 6."
        )
    steps = torch.arange(side, dtype=torch.float64) / side
    corners = torch.stack((steps.repeat(side), steps.repeat_interleave(side)), dim=1)
    return torch.cat((corners, corners + 1 / side), dim=1)
