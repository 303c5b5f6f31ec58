"""The transformer of TAGS: post-LN layers over the words and the regions of a pair, and its inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from vsetune.errors import DataError
from vsetune.networks.inputs import square_side

_SPREAD, _AT_WIDTH = 0.02, 768
_SMALL_PRODUCTS = 3
"""Times as long as in one large product, the same arithmetic takes in a small one for every pair."""


@dataclass(frozen=True)
class EncoderShape:
    """size: D. inner: width of the layer between the two maps behind attention. epsilon: of every LayerNorm."""

    size: int
    layers: int
    heads: int
    inner: int
    dropout: float
    epsilon: float = 1e-12


def bert_linear(inputs: int, outputs: int, *, size: int) -> nn.Linear:
    """Weights N(0, 0.02), zero bias. Below the 768 of BERT's base they are wider by the root of 768 / size.

    Otherwise a narrow network starts with uniform attention and layers that add almost nothing.
    """
    linear = nn.Linear(inputs, outputs)
    nn.init.normal_(linear.weight, std=_SPREAD * max(1.0, _AT_WIDTH / size) ** 0.5)
    nn.init.zeros_(linear.bias)
    return linear


def bert_embedding(rows: int, size: int) -> nn.Embedding:
    """Weights N(0, 0.02)."""
    embedding = nn.Embedding(rows, size)
    nn.init.normal_(embedding.weight, std=_SPREAD)
    return embedding


class JointEncoder(nn.Module):
    """States of some places of a sequence behind all layers."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self._size = shape.size
        self.dropout = nn.Dropout(shape.dropout)
        self.layers = nn.ModuleList(EncoderLayer(shape) for _ in range(shape.layers))

    def forward(self, tokens: Tensor, is_real: Tensor, places: Tensor) -> Tensor:
        """(B, Q, D) states at the places. tokens: (B, P, D), or (B, P, 4 D) as `prepared` gives them. is_real: (B, P)
        bool. places: (B, Q) int64.

        The last layer is computed at the places alone, which changes none of them.
        """
        mask, (*layers, last) = is_real[:, None, None], self._layers()
        if tokens.shape[2] == self._size:
            states = self.dropout(tokens)
        else:
            states, query, key, value = torch.split(tokens, self._size, dim=2)
            if layers:
                states = layers.pop(0).attend(states, query, key, value, mask)
        for layer in layers:
            states = layer(states, states, mask)
        first = torch.arange(len(states), device=states.device)[:, None] * states.shape[1]
        # the backward pass of index_select adds rows, that of gather adds numbers one by one
        read = states.flatten(0, 1).index_select(0, (first + places).flatten()).view(*places.shape, -1)
        return last.read(read, states, mask)

    def prepared(self, tokens: Tensor) -> Tensor:
        """(..., P, 4 D) tokens (..., P, D), and their query, key and value in the first layer, before the sequences are
        joined.

        Computed once for a caption or an image, for all its pairs; without dropout, which acts inside a pair.
        """
        first, *_ = self._layers()
        return torch.cat((tokens, first.query(tokens), first.key(tokens), first.value(tokens)), dim=-1)

    def _layers(self) -> list[EncoderLayer]:
        return cast(list[EncoderLayer], list(self.layers))


class EncoderLayer(nn.Module):
    """Attention and a map through `inner` numbers, each added to its input and normalised behind (post-LN)."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        size, inner, self._heads = shape.size, shape.inner, shape.heads
        self.query = bert_linear(size, size, size=size)
        self.key = bert_linear(size, size, size=size)
        self.value = bert_linear(size, size, size=size)
        self.attended = bert_linear(size, size, size=size)
        self.attention_norm = nn.LayerNorm(size, eps=shape.epsilon)
        self.inner = bert_linear(size, inner, size=size)
        self.outer = bert_linear(inner, size, size=size)
        self.output_norm = nn.LayerNorm(size, eps=shape.epsilon)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, read: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        """(B, Q, D). read: (B, Q, D), the states that ask; states: (B, P, D). mask: (B, 1, 1, P) bool, True: real."""
        return self.attend(read, self.query(read), self.key(states), self.value(states), mask)

    def attend(self, read: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """(B, Q, D), as above. query: (B, Q, D) of the states that ask; key, value: (B, P, D)."""
        query, key, value = map(self._by_head, (query, key, value))
        found = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=self.dropout.p if self.training else 0.0
        )
        return self._mapped(read, found)

    def read(self, read: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        """As `forward`. With few query states, keys and values are not computed for the others: the query passes
        through the map of the keys instead, and the attended sum through that of the values."""
        (asking, size), places = read.shape[1:], states.shape[1]
        if _SMALL_PRODUCTS * asking * (size + self._heads * places) >= places * size:
            out: Tensor = self(read, states, mask)
            return out
        query = self._by_head(self.query(read) / math.sqrt(size // self._heads))
        to_keys = torch.einsum("bhqk,hkd->bhqd", query, self._head_rows(self.key.weight))
        constant = (query * self.key.bias.view(self._heads, 1, -1)).sum(dim=-1, keepdim=True)
        scores = (to_keys.flatten(1, 2) @ states.mT).view(len(read), self._heads, asking, places) + constant
        weights = functional.dropout(
            scores.masked_fill(~mask, float("-inf")).softmax(dim=-1), self.dropout.p, self.training
        )
        seen = (weights.flatten(1, 2) @ states).view(len(read), self._heads, asking, size)
        found = torch.einsum("bhqd,hvd->bhqv", seen, self._head_rows(self.value.weight))
        return self._mapped(read, found + weights.sum(dim=-1, keepdim=True) * self.value.bias.view(self._heads, 1, -1))

    def _head_rows(self, weight: Tensor) -> Tensor:
        """(heads, D / heads, D)."""
        return weight.view(self._heads, -1, weight.shape[1])

    def _mapped(self, read: Tensor, found: Tensor) -> Tensor:
        """(B, Q, D). found: (B, heads, Q, D / heads) of attention."""
        mixed = self.attention_norm(read + self.dropout(self.attended(found.transpose(1, 2).flatten(2))))
        mapped = self.outer(functional.gelu(self.inner(mixed)))
        out: Tensor = self.output_norm(mixed + self.dropout(mapped))
        return out

    def _by_head(self, values: Tensor) -> Tensor:
        return values.view(*values.shape[:2], self._heads, -1).transpose(1, 2)


_PLACE = 7
_TYPES = 2
_INPUT_SPREAD = 0.02


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
        nn.init.normal_(self.region_map.bias, std=_INPUT_SPREAD)
        self.region_norm = nn.LayerNorm(size, eps=shape.epsilon)
        self.place_map = bert_linear(_PLACE, size, size=size)
        self.place_norm = nn.LayerNorm(size, eps=shape.epsilon)
        self.image_norm = nn.LayerNorm(size, eps=shape.epsilon)

    def of_words(self, tokens: Tensor) -> Tensor:
        """(M, L, D). tokens: (M, L). DataError for captions longer than there are positions."""
        length, longest = tokens.shape[1], self.positions.num_embeddings
        if length > longest:
            raise DataError(
                "VSE-N007", "{where} reads at most {most} ids, got a caption of {got}; cut the captions",
                where="network tags", most=longest, got=length,
            )
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
    side = square_side(regions, where="network tags")
    steps = torch.arange(side, dtype=torch.float64) / side
    corners = torch.stack((steps.repeat(side), steps.repeat_interleave(side)), dim=1)
    return torch.cat((corners, corners + 1 / side), dim=1)
