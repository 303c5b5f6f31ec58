"""Gradients of scores that depend on their own pair alone: the cost covers only the pairs that have a gradient.

Losses over hardest negatives (LMH, LSEH, ...) read at most three scores per pair of the batch. Of 64 x 64 scores 95 %
get the gradient 0, which autograd would propagate through all their words. Here the few others are computed once more,
in one of two ways, and only they are propagated; nothing of the first pass is stored (decision 0034).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vsetune.networks.encoded import Encoded
from vsetune.networks.parts.network_devices import hand_derived

ScoresOf = Callable[[Encoded, Encoded], Tensor]
ChosenScoresOf = Callable[[Encoded, Encoded, Tensor, Tensor], Tensor]
Names = tuple[str, ...]

_FEW = 1 / 8
"""Share of pairs below which they are computed again. A second pass over a pair costs about half its gradient, and
separate pairs share no matrix products."""

_PAIRS_AT_ONCE = 32
"""Pairs of similar length: little is computed for padding, and they use little memory (9 MB at 36 regions of 1,024)."""
_CHOSEN_AT_ONCE = 256
"""Pairs chosen from all items at once: limits their memory (GSMN: 0.3 GB)."""


@dataclass
class Seen:
    """Whether most scores had a gradient last time: then the first pass stores what the next backward pass needs. That
    saves time and changes no number."""

    is_dense: bool = False


@dataclass(frozen=True)
class SideBySide:
    """Few pairs from copies of their items. of_pairs: (P,) images and (P,) captions to (P,), image p with caption p."""

    of_pairs: ScoresOf

    def gradients(self, ctx: Any, gradient: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, ...]:
        """Of all inputs. rows, columns: (P,), the pairs that have one, at least one, longest captions first."""
        totals = [torch.zeros_like(tensor) for tensor in _inputs(ctx, ctx.images, ctx.captions)]
        for row, column in zip(torch.split(rows, _PAIRS_AT_ONCE), torch.split(columns, _PAIRS_AT_ONCE), strict=True):
            images, captions = _leaves(ctx.images[row], ctx.names[0]), _leaves(_cut(ctx.captions[column]), ctx.names[1])
            with torch.enable_grad():
                scores = self.of_pairs(images, captions)
            parts = _gradients(scores, _inputs(ctx, images, captions), gradient[row, column])
            places = [row] * len(ctx.names[0]) + [column] * len(ctx.names[1])
            for total, part, place in zip(totals, parts, places, strict=False):
                total[(slice(None), *(slice(size) for size in part.shape[1:]))].index_add_(0, place, part)
            for total, part in zip(totals[len(places) :], parts[len(places) :], strict=True):
                total += part
        return tuple(totals)


@dataclass(frozen=True)
class Chosen:
    """Few pairs from intermediate values of all items, each prepared once. of_chosen: (N,) images, (M,) captions, rows
    (P,) and columns (P,) to the (P,) scores of these pairs."""

    of_chosen: ChosenScoresOf

    def gradients(self, ctx: Any, gradient: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, ...]:
        """As above."""
        inputs = _inputs(ctx, ctx.images, ctx.captions)
        totals: tuple[Tensor, ...] = ()
        for row, column in zip(torch.split(rows, _CHOSEN_AT_ONCE), torch.split(columns, _CHOSEN_AT_ONCE), strict=True):
            with torch.enable_grad():
                scores = self.of_chosen(ctx.images, ctx.captions, row, column)
            parts = _gradients(scores, inputs, gradient[row, column])
            totals = tuple(total.add_(part) for total, part in zip(totals, parts, strict=True)) if totals else parts
        return totals


def scores_by_pair(
    of_all: ScoresOf, of_few: SideBySide | Chosen, images: Encoded, captions: Encoded, weights: Sequence[Tensor],
    seen: Seen,
) -> Tensor:
    """of_all(images, captions), differentiable once, with gradients for encoded items and weights.

    of_all: (N,) images and (M,) captions to (N, M). Both ways compute each score from its own pair and use no random
    numbers. weights: all parameters and buffers they read; as with autograd, RuntimeError in the backward pass when one
    of these, or an item, has been changed in place since.
    """
    if not torch.is_grad_enabled() or not hand_derived(images.vectors):
        return of_all(images, captions)
    names = _learned(images), _learned(captions)
    learning = [weight for weight in weights if weight.requires_grad]
    fixed = [weight for weight in weights if not weight.requires_grad]
    tensors = (*_values(images, names[0]), *_values(captions, names[1]), *learning)
    return _Scores.apply((of_all, of_few), seen, images, captions, (names, fixed), *tensors)  # type: ignore[no-any-return, no-untyped-call]


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, ways: tuple[ScoresOf, SideBySide | Chosen], seen: Seen, images: Encoded, captions: Encoded,
        read: tuple[tuple[Names, Names], Sequence[Tensor]], *tensors: Tensor,
    ) -> Tensor:
        names, fixed = read
        ctx.save_for_backward(*tensors, *fixed, *_tensors(images), *_tensors(captions))
        ctx.of_all, ctx.of_few = ways
        ctx.seen, ctx.names, ctx.parameters = seen, names, tensors[len(names[0]) + len(names[1]) :]
        ctx.images, ctx.captions = _leaves(images, names[0]), _leaves(captions, names[1])
        with torch.set_grad_enabled(seen.is_dense):
            ctx.scores = ctx.of_all(ctx.images, ctx.captions)
        scores: Tensor = ctx.scores.detach()
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors  # autograd raises for what has been changed in place
        has_gradient = gradient != 0
        ctx.seen.is_dense = int(has_gradient.sum()) >= _FEW * gradient.numel()
        if ctx.seen.is_dense:
            return None, None, None, None, None, *_of_all(ctx, gradient)
        ctx.scores = None
        rows, columns = has_gradient.nonzero().T
        if len(rows) == 0:
            zeros = (torch.zeros_like(tensor) for tensor in _inputs(ctx, ctx.images, ctx.captions))
            return None, None, None, None, None, *zeros
        by_length = ctx.captions.lengths[columns].argsort(descending=True, stable=True)
        found = ctx.of_few.gradients(ctx, gradient, rows[by_length], columns[by_length])
        return None, None, None, None, None, *found


def _of_all(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
    scores, ctx.scores = ctx.scores, None
    if scores is None or not scores.requires_grad:
        with torch.enable_grad():
            scores = ctx.of_all(ctx.images, ctx.captions)
    return _gradients(scores, _inputs(ctx, ctx.images, ctx.captions), gradient)


def _gradients(scores: Tensor, inputs: list[Tensor], gradient: Tensor) -> tuple[Tensor, ...]:
    """Zeros for what the scores do not depend on."""
    return torch.autograd.grad(scores, inputs, gradient, allow_unused=True, materialize_grads=True)


def _inputs(ctx: Any, images: Encoded, captions: Encoded) -> list[Tensor]:
    return [*_values(images, ctx.names[0]), *_values(captions, ctx.names[1]), *ctx.parameters]


def _learned(items: Encoded) -> Names:
    """What of the items asks for a gradient."""
    named = ((each.name, getattr(items, each.name)) for each in fields(items))
    return tuple(name for name, value in named if value is not None and value.requires_grad)


def _tensors(items: Encoded) -> list[Tensor]:
    return [value for value in vars(items).values() if value is not None]


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


OfPairs = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Vectors of regions and of words, (B,) rows of both -> numbers of these pairs."""


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
