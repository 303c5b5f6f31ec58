"""Pairs of images and captions through the transformer in blocks, with gradients only where there are some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from vsetune.networks.encoded import Encoded
from vsetune.networks.network_base import word_mask
from vsetune.networks.parts.network_devices import numbers_at_once
from vsetune.networks.tags.spec import INNER

# of the widest layer of a block of pairs: 8 MiB of float32 on a CPU, 512 MiB on a GPU
_NUMBERS_PER_BLOCK_CPU, _NUMBERS_PER_BLOCK = 2**21, 2**27

_MOST_KEPT = 2**29
"""Numbers (2 GiB of float32) stored for the backward pass; the excess is computed twice."""

_KEPT_PER_TOKEN = 10 + 3 * INNER
"""Numbers that a layer stores for the backward pass, per token, in widths of a token."""

OfPairs = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Vectors of regions and of words, (B,) rows of both -> numbers of these pairs."""


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


def scores_of_few(
    scores_of: OfPairs, images: Tensor, captions: Tensor, pairs: tuple[Tensor, Tensor], parameters: Sequence[Tensor],
    *, block: int,
) -> Tensor:
    """scores_of(images, captions, *pairs), (pairs,), in blocks of `block` pairs, with gradient for all tensors.

    scores_of must compute each score from its own pair and use no random numbers. parameters: all that it uses; as with
    autograd, RuntimeError in the backward pass when one has been changed in place since.
    """
    learning = [parameter for parameter in parameters if parameter.requires_grad]
    fixed = [parameter for parameter in parameters if not parameter.requires_grad]
    return _FewPairs.apply(scores_of, block, fixed, *pairs, images, captions, *learning)  # type: ignore[no-any-return, no-untyped-call]


class _FewPairs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores_of: OfPairs, block: int, fixed: Sequence[Tensor], rows: Tensor, columns: Tensor,
        *tensors: Tensor,
    ) -> Tensor:
        ctx.scores_of, ctx.block, ctx.learning = scores_of, block, len(tensors)
        ctx.autocast = _autocast_now()
        ctx.save_for_backward(rows, columns, *tensors, *fixed)
        parts = zip(torch.split(rows, block), torch.split(columns, block), strict=True)
        return torch.cat([scores_of(tensors[0], tensors[1], *part) for part in parts])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, columns, images, captions, *parameters = ctx.saved_tensors[: 2 + ctx.learning]
        read = gradient.nonzero().flatten()
        inputs = [images.detach().requires_grad_(), captions.detach().requires_grad_(), *parameters]
        totals = [torch.zeros_like(value) for value in inputs]
        for some in torch.split(read, ctx.block) if len(read) else ():
            with torch.enable_grad(), ctx.autocast():
                scores = ctx.scores_of(inputs[0], inputs[1], rows[some], columns[some])
            for total, part in zip(totals, torch.autograd.grad(scores, inputs, gradient[some]), strict=True):
                total += part
        return None, None, None, None, None, *totals


def _autocast_now() -> Callable[[], torch.autocast]:
    """A function that recreates the autocast active now; never used on a GPU (`hand_derived`)."""
    is_on, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    return lambda: torch.autocast("cpu", dtype=dtype, enabled=is_on)
