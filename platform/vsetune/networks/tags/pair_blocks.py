"""Pairs of images and captions through the transformer in blocks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vsetune.networks.encoded import Encoded
from vsetune.networks.network_base import word_mask
from vsetune.networks.parts.cpu.pairs import OfPairs
from vsetune.networks.parts.network_devices import numbers_at_once
from vsetune.networks.tags.spec import INNER

# of the widest layer of a block of pairs: 8 MiB of float32 on a CPU, 512 MiB on a GPU
_NUMBERS_PER_BLOCK_CPU, _NUMBERS_PER_BLOCK = 2**21, 2**27

_MOST_KEPT = 2**29
"""Numbers (2 GiB of float32) stored for the backward pass; the excess is computed twice."""

_KEPT_PER_TOKEN = 10 + 3 * INNER
"""Numbers that a layer stores for the backward pass, per token, in widths of a token."""

@dataclass(frozen=True)
class PairBlocks:
    """The images (N) and captions (M) that pairs are made of. layers: of the transformer, for the size of stored
    values."""

    images: Encoded
    captions: Encoded
    layers: int

    def apply(
        self, compute: OfPairs, rows: Tensor, columns: Tensor, *, vectors: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """The results of compute for all pairs, concatenated; where too much would be stored, blocks are computed
        twice.

        rows, columns: (B,) the image and the caption of each pair. vectors: passed to compute in place of those of
        regions and of words.
        """
        kept = len(rows) * self.layers * self._numbers_of_a_pair * _KEPT_PER_TOKEN
        found = []
        for some in zip(torch.split(rows, self.size), torch.split(columns, self.size), strict=True):
            inputs = (*(vectors or (self.images.vectors, self.captions.vectors)), *some)
            if torch.is_grad_enabled() and kept > _MOST_KEPT:
                found.append(checkpoint(compute, *inputs, use_reentrant=False))
            else:
                found.append(compute(*inputs))
        return torch.cat(found)

    @property
    def size(self) -> int:
        """Pairs of a block."""
        places = self.images.vectors.shape[1] + self.captions.vectors.shape[1]
        return pairs_of_a_block(self.images.vectors, places=places)

    def joined(self, regions: Tensor, words: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """(B, P, D) words and then regions of each pair, and (B, P) bool, which are real; words up to the longest.

        regions: (N, R, D); words: (M, L, D).
        """
        assert self.images.lengths is not None
        assert self.captions.lengths is not None
        lengths = self.captions.lengths[columns]
        longest = int(lengths.max())
        # the backward pass of index_select adds rows, that of indexing adds numbers one by one
        sequence = torch.cat((words[:, :longest].index_select(0, columns), regions.index_select(0, rows)), dim=1)
        are_regions = word_mask(self.images.lengths[rows], regions.shape[1])
        return sequence, torch.cat((word_mask(lengths, longest), are_regions), dim=1)

    @property
    def _numbers_of_a_pair(self) -> int:
        return (self.images.vectors.shape[1] + self.captions.vectors.shape[1]) * self.images.vectors.shape[2]


def pairs_of_a_block(vectors: Tensor, *, places: int) -> int:
    """Pairs of so many places each, as wide as these vectors and where they are, to be computed at a time."""
    numbers = numbers_at_once(vectors, cpu=_NUMBERS_PER_BLOCK_CPU, gpu=_NUMBERS_PER_BLOCK)
    return max(1, numbers // (places * vectors.shape[-1] * INNER))
