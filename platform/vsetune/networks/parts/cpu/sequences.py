"""A GRU step by step in the cache, and states that sequences share, on a CPU."""

from __future__ import annotations

from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Step(NamedTuple):
    """States that are computed together, and the state before each of them; none of the first step, from zero."""

    rows: slice
    before: Tensor


class States(NamedTuple):
    """In the order of the steps. elements: (N,) row of the inputs that each state reads; places: (T,) state of each
    element. Both None where each element has the state of its own row."""

    steps: list[Step]
    elements: Tensor | None = None
    places: Tensor | None = None


def states_of_all(sizes: list[int], *, backwards: bool) -> States:
    """One state for each element. sizes: number of sequences that have each length or more."""
    rows = _steps_of(sizes)
    steps = [Step(rows[0], torch.arange(0))]
    for one, other in zip(rows[1:], rows, strict=False):
        steps.append(Step(one, torch.arange(other.start, other.start + one.stop - one.start)))
    if not backwards:
        return States(steps)
    turned = torch.from_numpy(_turned(sizes))
    return States(steps, turned, turned)


def shared_states(elements: Tensor, sizes: list[int], *, backwards: bool) -> States:
    """One state for all sequences that have been equal so far. elements: (T,) number of each element, from 0; sizes: as
    above."""
    turned = _turned(sizes) if backwards else np.arange(len(elements))
    read = elements.numpy()[turned]
    kinds = int(read.max()) + 1
    states, chosen = np.empty(len(read), dtype=np.int64), []
    steps: list[Step] = []
    come_from, count = np.zeros(sizes[0], np.int64), 0  # before the first step all have read nothing
    for rows in _steps_of(sizes):
        come_from = come_from[: rows.stop - rows.start]  # sequences that are long enough stand first
        _, samples, numbers = np.unique(come_from * kinds + read[rows], return_index=True, return_inverse=True)
        before = come_from[samples] if steps else samples[:0]
        steps.append(Step(slice(count, count + len(samples)), torch.from_numpy(before)))
        chosen.append(read[rows][samples])
        come_from = states[rows] = count + numbers
        count += len(samples)
    places = np.empty_like(states)
    places[turned] = states
    return States(steps, torch.from_numpy(np.concatenate(chosen)), torch.from_numpy(places))


def _steps_of(sizes: list[int]) -> list[slice]:
    """Rows of the elements that are read together, one step after the other."""
    return [slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]


def _turned(sizes: list[int]) -> np.ndarray:
    """(T,) rows of all last elements, all last but one, ...: reading it again gives back the order."""
    counts = np.asarray(sizes)
    starts = counts.cumsum() - counts
    steps = np.repeat(np.arange(len(counts)), counts)
    sequences = np.arange(counts.sum()) - starts[steps]
    lengths = (counts[:, None] > np.arange(counts[0])).sum(axis=0)
    rows: np.ndarray = starts[lengths[sequences] - 1 - steps] + sequences
    return rows


def gru_states(inputs: Tensor, parameters: list[Tensor], order: States) -> Tensor:
    """(N, D) states of one direction, differentiable once. inputs: (U, W). parameters: those of nn.GRU, with gates in
    the order r, u, c."""
    return _Gru.apply(inputs, *parameters, order)  # type: ignore[no-any-return, no-untyped-call]


class _Gru(torch.autograd.Function):
    """A step works on what stays in a processor's cache; all that has N rows is written once."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, input_weight: Tensor, weight: Tensor, input_bias: Tensor, bias: Tensor, order: States
    ) -> Tensor:
        size = weight.shape[1]
        both = 2 * size  # r and u
        # of r, u and c, one beside the other
        values = torch.addmm(input_bias, inputs, input_weight.T)
        if order.elements is not None:
            values = values.index_select(0, order.elements)
        recurrent = inputs.new_empty(len(values), size)  # n
        states = torch.empty_like(recurrent)
        befores = torch.zeros_like(recurrent)
        for step in order.steps:
            if len(step.before):
                before = torch.index_select(states, 0, step.before, out=befores[step.rows])
                found = torch.addmm(bias, before, weight.T)
                values[step.rows, :both] += found[:, :both]
                recurrent[step.rows] = found[:, both:]
            else:
                values[step.rows, :both] += bias[:both]
                recurrent[step.rows] = bias[both:]
            _, update = values[step.rows, :both].sigmoid_().chunk(2, dim=1)
            candidates = values[step.rows, both:].addcmul_(values[step.rows, :size], recurrent[step.rows]).tanh_()
            torch.lerp(candidates, befores[step.rows], update, out=states[step.rows])
        ctx.save_for_backward(inputs, input_weight, weight, values, recurrent, befores)
        ctx.order = order
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, input_weight, weight, values, recurrent, befores = ctx.saved_tensors
        size, elements = weight.shape[1], ctx.order.elements
        gradient = gradient.clone()
        of_hidden = torch.empty_like(values)  # of W_h h + b_h, gate by gate
        for step in reversed(ctx.order.steps):
            reset, update, candidates = values[step.rows].chunk(3, dim=1)
            of_reset, of_update, of_recurrent = of_hidden[step.rows].chunk(3, dim=1)
            here, before = gradient[step.rows], befores[step.rows]
            carried = here * update
            of_candidates = here - carried
            of_candidates.addcmul_(of_candidates * candidates, candidates, value=-1)
            torch.mul(of_candidates, reset, out=of_recurrent)
            slope = of_recurrent * recurrent[step.rows]
            torch.addcmul(slope, slope, reset, value=-1, out=of_reset)
            torch.mul(before - candidates, torch.addcmul(carried, carried, update, value=-1), out=of_update)
            here.copy_(of_candidates)
            if len(step.before):
                gradient.index_add_(0, step.before, torch.addmm(carried, of_hidden[step.rows], weight))
        of_weight, of_bias = of_hidden.T @ befores, of_hidden.sum(dim=0)
        of_hidden[:, 2 * size :] = gradient  # now of W_i x + b_i
        if elements is not None:
            of_hidden = of_hidden.new_zeros(len(inputs), of_hidden.shape[1]).index_add_(0, elements, of_hidden)
        of_input_weight, of_input_bias = of_hidden.T @ inputs, of_hidden.sum(dim=0)
        of_inputs = of_hidden @ input_weight if ctx.needs_input_grad[0] else None
        return of_inputs, of_input_weight, of_weight, of_input_bias, of_bias, None
