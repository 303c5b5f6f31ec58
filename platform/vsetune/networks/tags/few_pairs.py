"""Scores of a list of pairs, with a backward pass only through those that have a gradient.

Losses over hardest negatives read at most three scores per pair of a batch. All others get the gradient 0, which
autograd would propagate through every layer of a transformer. Here the few are computed once more, in blocks, and only
they are propagated; nothing of the first pass is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

ScoresOf = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Vectors of images and of captions, (pairs,) rows of both -> (pairs,) scores."""


def scores_of_few(
    scores_of: ScoresOf, images: Tensor, captions: Tensor, pairs: tuple[Tensor, Tensor], parameters: Sequence[Tensor],
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
        ctx: Any, scores_of: ScoresOf, block: int, fixed: Sequence[Tensor], rows: Tensor, columns: Tensor,
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
