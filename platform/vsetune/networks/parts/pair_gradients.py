"""Scores of which each depends on its own pair alone: their gradient costs only the pairs that have one.

Losses over hardest negatives (LMH, LSEH, ...) read at most three scores per pair of the batch. Of 64 x 64 scores 95 %
get the gradient 0, which autograd would carry back through all their words. Here the few others are computed once more,
side by side, and only they are carried back; nothing of the first pass is kept (decisions 0034 and 0050).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vsetune.networks.encoded import Encoded
from vsetune.networks.parts.gradients import hand_derived

ScoresOf = Callable[[Encoded, Encoded], Tensor]
Names = tuple[str, ...]

_FEW = 1 / 8
"""Share of pairs below which they are computed again. A second pass over a pair costs about half its gradient, and
pairs side by side share no products of matrices."""

_PAIRS_AT_ONCE = 32
"""Of like length: little is computed for padding, and what they take (9 MB at 36 regions of 1,024) stays small."""


@dataclass
class Seen:
    """Whether the last gradient was of most scores: then what it takes to carry the next one back is kept from the
    first pass. That saves time and changes no number."""

    is_dense: bool = False


def scores_by_pair(
    of_all: ScoresOf, of_pairs: ScoresOf, images: Encoded, captions: Encoded, parameters: Sequence[Tensor], seen: Seen
) -> Tensor:
    """of_all(images, captions), with gradient, once, for what is encoded and for the parameters.

    of_all: (N,) images and (M,) captions to (N, M). of_pairs: (P,) images and (P,) captions to (P,), image p with
    caption p. Both compute each score from its own pair and draw nothing at random.
    """
    if not torch.is_grad_enabled() or not hand_derived(images.vectors):
        return of_all(images, captions)
    names = _learned(images), _learned(captions)
    learning = [parameter for parameter in parameters if parameter.requires_grad]
    tensors = (*_values(images, names[0]), *_values(captions, names[1]), *learning)
    return _Scores.apply((of_all, of_pairs), seen, images, captions, names, *tensors)  # type: ignore[no-any-return, no-untyped-call]


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, ways: tuple[ScoresOf, ScoresOf], seen: Seen, images: Encoded, captions: Encoded,
        names: tuple[Names, Names], *tensors: Tensor,
    ) -> Tensor:
        ctx.of_all, ctx.of_pairs = ways
        ctx.seen, ctx.names, ctx.parameters = seen, names, tensors[len(names[0]) + len(names[1]) :]
        ctx.images, ctx.captions = _leaves(images, names[0]), _leaves(captions, names[1])
        with torch.set_grad_enabled(seen.is_dense):
            ctx.scores = ctx.of_all(ctx.images, ctx.captions)
        scores: Tensor = ctx.scores.detach()
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        has_gradient = gradient != 0
        ctx.seen.is_dense = int(has_gradient.sum()) >= _FEW * gradient.numel()
        found = _of_all(ctx, gradient) if ctx.seen.is_dense else _of_few(ctx, gradient, *has_gradient.nonzero().T)
        return None, None, None, None, None, *found


def _of_all(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
    scores, ctx.scores = ctx.scores, None
    if scores is None or not scores.requires_grad:
        with torch.enable_grad():
            scores = ctx.of_all(ctx.images, ctx.captions)
    return _gradients(scores, _inputs(ctx, ctx.images, ctx.captions), gradient)


def _of_few(ctx: Any, gradient: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, ...]:
    ctx.scores = None
    totals = [torch.zeros_like(tensor) for tensor in _inputs(ctx, ctx.images, ctx.captions)]
    by_length = ctx.captions.lengths[columns].argsort(descending=True, stable=True)
    for some in torch.split(by_length, _PAIRS_AT_ONCE) if len(by_length) else ():
        row, column = rows[some], columns[some]
        images, captions = _leaves(ctx.images[row], ctx.names[0]), _leaves(_cut(ctx.captions[column]), ctx.names[1])
        with torch.enable_grad():
            scores = ctx.of_pairs(images, captions)
        parts = _gradients(scores, _inputs(ctx, images, captions), gradient[row, column])
        places = [row] * len(ctx.names[0]) + [column] * len(ctx.names[1])
        for total, part, place in zip(totals, parts, places, strict=False):
            total[(slice(None), *(slice(size) for size in part.shape[1:]))].index_add_(0, place, part)
        for total, part in zip(totals[len(places) :], parts[len(places) :], strict=True):
            total += part
    return tuple(totals)


def _gradients(scores: Tensor, inputs: list[Tensor], gradient: Tensor) -> tuple[Tensor, ...]:
    """Zeros for what the scores do not depend on."""
    return torch.autograd.grad(scores, inputs, gradient, allow_unused=True, materialize_grads=True)


def _inputs(ctx: Any, images: Encoded, captions: Encoded) -> list[Tensor]:
    return [*_values(images, ctx.names[0]), *_values(captions, ctx.names[1]), *ctx.parameters]


def _learned(items: Encoded) -> Names:
    """What of the items asks for a gradient."""
    named = ((each.name, getattr(items, each.name)) for each in fields(items))
    return tuple(name for name, value in named if value is not None and value.requires_grad)


def _values(items: Encoded, names: Names) -> list[Tensor]:
    return [getattr(items, name) for name in names]


def _leaves(items: Encoded, names: Names) -> Encoded:
    return replace(items, **{name: getattr(items, name).detach().requires_grad_() for name in names})


def _cut(captions: Encoded) -> Encoded:
    """Without the padding behind the longest."""
    assert captions.lengths is not None
    longest = max(1, int(captions.lengths.max()))
    links = None if captions.links is None else captions.links[:, :longest, :longest]
    return replace(captions, vectors=captions.vectors[:, :longest], links=links)
