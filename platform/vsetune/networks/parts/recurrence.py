"""A GRU over sequences of different lengths with its gradient written out: on a CPU faster than nn.GRU (decision 0034).

    r = sigma(W_ir x + b_ir + W_hr h + b_hr)    u = sigma(W_iu x + b_iu + W_hu h + b_hu)
    n = W_hn h + b_hn                           c = tanh(W_in x + b_in + r n)
    h' = (1 - u) c + u h

Automatic differentiation adds a product as large as the weights to their gradient at every step. Here a step back only
carries the gradient of the state; the weights get theirs from one product over all steps. Nothing is padded.

Letters of shapes: S sequences, P their elements together (packed: all first elements, all second ones, ...), W numbers
of an element, D hidden units.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import PackedSequence

from vsetune.networks.network_base import at_least_float32
from vsetune.networks.parts.gradients import hand_derived


def run_gru(gru: nn.GRU, inputs: PackedSequence) -> tuple[PackedSequence, Tensor]:
    """All states, and (directions, S, D) the last of each sequence: what `gru(inputs)` gives, of one layer with biases.

    float32 or wider, also under autocast, and differentiable once. Elsewhere than on a CPU, and with gradients by
    automatic differentiation, it is `gru` itself, which follows autocast.
    """
    if not hand_derived(inputs.data):
        states, last = gru(inputs)
        return states, last
    assert gru.num_layers == 1
    assert gru.bias
    suffixes = ("l0", "l0_reverse") if gru.bidirectional else ("l0",)
    sizes = inputs.batch_sizes.tolist()
    with torch.autocast("cpu", enabled=False):
        directions = [
            _Gru.apply(  # type: ignore[no-untyped-call]
                at_least_float32(inputs.data), *_parameters(gru, suffix), _steps(sizes, backwards=suffix != "l0")
            )
            for suffix in suffixes
        ]
    ends = (_last_rows(inputs.batch_sizes), torch.arange(sizes[0]))  # backwards, the first element is the last read
    last = torch.stack([states[rows] for states, rows in zip(directions, ends, strict=False)])
    if inputs.unsorted_indices is not None:
        last = last[:, inputs.unsorted_indices]
    return inputs._replace(data=directions[0] if len(directions) == 1 else torch.cat(directions, dim=1)), last


class _Step(NamedTuple):
    """Rows of P that are computed together, and the rows of the states before the first so many of them."""

    rows: slice
    before: slice

    @property
    def continued(self) -> slice:
        """The rows that have a state before them; the others start at zero."""
        return slice(self.rows.start, self.rows.start + self.before.stop - self.before.start)


def _steps(sizes: list[int], *, backwards: bool) -> list[_Step]:
    """sizes: of the sequences that are at least so long, longest sequences first."""
    rows = [slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]
    if backwards:
        rows.reverse()
    steps = [_Step(rows[0], slice(0, 0))]
    for one, other in zip(rows[1:], rows, strict=False):
        known = min(one.stop - one.start, other.stop - other.start)
        steps.append(_Step(one, slice(other.start, other.start + known)))
    return steps


def _last_rows(sizes: Tensor) -> Tensor:
    """(S,) row of the last element of each sequence, longest sequences first."""
    sequences = torch.arange(int(sizes[0]))
    lengths = (sizes[:, None] > sequences).sum(dim=0)
    return (sizes.cumsum(0) - sizes)[lengths - 1] + sequences


def _parameters(gru: nn.GRU, suffix: str) -> list[Tensor]:
    return [getattr(gru, f"{name}_{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]


class _Gru(torch.autograd.Function):
    """(P, D) states of one direction. inputs: (P, W); parameters as those of nn.GRU, gates in the order r, u, c."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, input_weight: Tensor, weight: Tensor, input_bias: Tensor, bias: Tensor,
        steps: list[_Step],
    ) -> Tensor:
        size = weight.shape[1]
        both = 2 * size  # r and u
        gates = torch.addmm(input_bias[:both] + bias[:both], inputs, input_weight[:both].T)
        candidates = torch.addmm(input_bias[both:], inputs, input_weight[both:].T)
        recurrent = bias[both:].expand(len(inputs), size).clone()  # n
        states = torch.empty_like(candidates)
        for step in steps:
            before, continued = states[step.before], step.continued
            gates[continued].addmm_(before, weight[:both].T)
            recurrent[continued].addmm_(before, weight[both:].T)
            reset, update = gates[step.rows].sigmoid_().chunk(2, dim=1)
            candidate = candidates[step.rows].addcmul_(reset, recurrent[step.rows]).tanh_()
            torch.mul(candidate, 1 - update, out=states[step.rows])
            states[continued].addcmul_(gates[continued, size:], before)
        ctx.save_for_backward(inputs, input_weight, weight, gates, candidates, recurrent, states)
        ctx.steps = steps
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, input_weight, weight, gates, candidates, recurrent, states = ctx.saved_tensors
        reset, update = gates.chunk(2, dim=1)
        before = torch.zeros_like(states)
        for step in ctx.steps:
            before[step.continued] = states[step.before]
        of_candidate = (1 - update) * (1 - candidates.square())
        # d h' by what r, u and n are made of; the gradient of a state times these is that of W_h h + b_h
        slopes = torch.stack((
            of_candidate * recurrent * reset * (1 - reset), (before - candidates) * update * (1 - update),
            of_candidate * reset,
        ), dim=1)
        gradient = gradient.clone()
        for step in reversed(ctx.steps):
            slopes[step.rows] *= gradient[step.rows, None]
            earlier = gradient[step.before]
            earlier.addcmul_(gradient[step.continued], update[step.continued])
            earlier.addmm_(slopes[step.continued].flatten(1), weight)
        of_hidden = slopes.flatten(1)
        of_weight, of_bias = of_hidden.T @ before, of_hidden.sum(dim=0)
        torch.mul(gradient, of_candidate, out=slopes[:, 2])
        of_input_weight, of_input_bias = of_hidden.T @ inputs, of_hidden.sum(dim=0)
        return of_hidden @ input_weight, of_input_weight, of_weight, of_input_bias, of_bias, None
