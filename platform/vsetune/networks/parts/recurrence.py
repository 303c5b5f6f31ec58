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
from vsetune.networks.parts.matrix_products import product


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
    def known(self) -> int:
        """How many rows have a state before them; the others start at zero."""
        return int(self.before.stop - self.before.start)

    @property
    def continued(self) -> slice:
        """Those rows."""
        return slice(self.rows.start, self.rows.start + self.known)

    @property
    def first(self) -> slice:
        """The others."""
        return slice(self.rows.start + self.known, self.rows.stop)


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
    """(P, D) states of one direction. inputs: (P, W); parameters as those of nn.GRU, gates in the order r, u, c.

    A step works on what stays in a processor's cache; all that has P rows is written once.
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, input_weight: Tensor, weight: Tensor, input_bias: Tensor, bias: Tensor,
        steps: list[_Step],
    ) -> Tensor:
        size = weight.shape[1]
        both = 2 * size  # r and u
        values = product(inputs, input_weight.T, input_bias)  # of r, u and c, one beside the other
        recurrent = inputs.new_empty(len(inputs), size)  # n
        states = torch.empty_like(recurrent)
        for step in steps:
            before, continued, first = states[step.before], step.continued, step.first
            if len(before):
                found = product(before, weight.T, bias)
                values[continued, :both] += found[:, :both]
                recurrent[continued] = found[:, both:]
            values[first, :both] += bias[:both]
            recurrent[first] = bias[both:]
            _, update = values[step.rows, :both].sigmoid_().chunk(2, dim=1)
            candidates = values[step.rows, both:].addcmul_(values[step.rows, :size], recurrent[step.rows]).tanh_()
            torch.lerp(candidates[: len(before)], before, update[: len(before)], out=states[continued])
            states[first] = candidates[len(before) :] * (1 - update[len(before) :])
        ctx.save_for_backward(inputs, input_weight, weight, values, recurrent, states)
        ctx.steps = steps
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, input_weight, weight, values, recurrent, states = ctx.saved_tensors
        size = weight.shape[1]
        gradient = gradient.clone()
        befores = torch.zeros_like(states)
        of_hidden = torch.empty_like(values)  # of W_h h + b_h, gate by gate
        for step in reversed(ctx.steps):
            reset, update, candidates = values[step.rows].chunk(3, dim=1)
            of_reset, of_update, of_recurrent = of_hidden[step.rows].chunk(3, dim=1)
            here, before = gradient[step.rows], befores[step.rows]
            before[: step.known] = states[step.before]
            carried = here * update
            of_candidates = here - carried
            of_candidates.addcmul_(of_candidates * candidates, candidates, value=-1)
            torch.mul(of_candidates, reset, out=of_recurrent)
            slope = of_recurrent * recurrent[step.rows]
            torch.addcmul(slope, slope, reset, value=-1, out=of_reset)
            torch.mul(before - candidates, torch.addcmul(carried, carried, update, value=-1), out=of_update)
            here.copy_(of_candidates)
            if step.known:
                earlier = gradient[step.before]
                earlier += carried[: step.known]
                earlier += product(of_hidden[step.continued], weight)
        of_weight, of_bias = product(of_hidden.T, befores), of_hidden.sum(dim=0)
        of_hidden[:, 2 * size :] = gradient  # now of W_i x + b_i
        of_input_weight, of_input_bias = product(of_hidden.T, inputs), of_hidden.sum(dim=0)
        of_inputs = product(of_hidden, input_weight) if ctx.needs_input_grad[0] else None
        return of_inputs, of_input_weight, of_weight, of_input_bias, of_bias, None
