"""Word embeddings and recurrent layers over captions, with a GRU that is faster on a CPU (decision 0034)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import PackedSequence

from vsetune.networks.network_base import at_least_float32
from vsetune.networks.parts.network_devices import hand_derived
from vsetune.networks.parts.packing import Repeated, States, pack, shared_states, spelt_out, states_of_all, unpack


def run_gru(gru: nn.GRU, inputs: PackedSequence | Repeated) -> tuple[PackedSequence, Tensor]:
    """All states, and (directions, S, D) the last of each sequence: the result of `gru(inputs)`, for one layer with
    biases.

    float32 or wider, also under autocast, and differentiable once. On other devices than a CPU, and with automatic
    differentiation, it calls `gru` itself, which follows autocast.
    """
    packed, rows = (inputs.places, inputs.table) if isinstance(inputs, Repeated) else (inputs, inputs.data)
    if not hand_derived(rows):
        states, last = gru(spelt_out(inputs))
        return states, last
    assert gru.num_layers == 1
    assert gru.bias
    sizes = packed.batch_sizes.tolist()
    directions = []
    with torch.autocast("cpu", enabled=False):
        for suffix in ("l0", "l0_reverse") if gru.bidirectional else ("l0",):
            backwards = suffix != "l0"
            order = (shared_states(packed.data, sizes, backwards=backwards) if isinstance(inputs, Repeated)
                     else states_of_all(sizes, backwards=backwards))
            found = _Gru.apply(  # type: ignore[no-untyped-call]
                at_least_float32(rows), *_parameters(gru, suffix), order
            )
            directions.append(found if order.places is None else found.index_select(0, order.places))
    ends = (_last_rows(packed.batch_sizes), torch.arange(sizes[0]))  # backwards, the first element is the last read
    last = torch.stack([states[rows] for states, rows in zip(directions, ends, strict=False)])
    if packed.unsorted_indices is not None:
        last = last[:, packed.unsorted_indices]
    return packed._replace(data=directions[0] if len(directions) == 1 else torch.cat(directions, dim=1)), last


def _last_rows(sizes: Tensor) -> Tensor:
    """(S,) row of the last element of each sequence, longest sequences first."""
    sequences = torch.arange(int(sizes[0]))
    lengths = (sizes[:, None] > sequences).sum(dim=0)
    return (sizes.cumsum(0) - sizes)[lengths - 1] + sequences


def _parameters(gru: nn.GRU, suffix: str) -> list[Tensor]:
    return [getattr(gru, f"{name}_{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]


class _Gru(torch.autograd.Function):
    """(N, D) states of one direction. inputs: (U, W); parameters as those of nn.GRU, gates in the order r, u, c.

    A step works on what stays in a processor's cache; all that has N rows is written once.
    """

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


Words = PackedSequence | Repeated
"""Vectors of the words of captions."""

_EMBEDDING_BOUND = 0.1


def word_embedding(vocabulary_size: int, word_size: int) -> nn.Embedding:
    """Trained word vectors, initialised from U(-0.1, 0.1) as in VSE++; the padding row is treated like the others."""
    embedding = nn.Embedding(vocabulary_size, word_size)
    nn.init.uniform_(embedding.weight, -_EMBEDDING_BOUND, _EMBEDDING_BOUND)
    return embedding


def embed_words(embedding: nn.Embedding, tokens: Tensor, lengths: Tensor) -> Words:
    """Word vectors of all captions without padding. Ids are packed before the look-up, which is cheaper than after; on
    a CPU each word of the batch is looked up once.

    lengths: (captions,) of tokens (captions, words); this waits for a GPU unless they are on the host.
    """
    ids = pack(tokens, lengths.cpu())
    if not hand_derived(embedding.weight):
        return ids._replace(data=embedding(ids.data))
    distinct, places = torch.unique(ids.data, return_inverse=True)
    return Repeated(embedding(distinct), ids._replace(data=places))


def drop_numbers(dropout: nn.Dropout, words: Words) -> Words:
    """Dropout at each position separately: the same word elsewhere loses other numbers."""
    if not dropout.training or dropout.p == 0:
        return words
    packed = spelt_out(words)
    return packed._replace(data=dropout(packed.data))


def last_state(gru: nn.GRU, words: Words) -> Tensor:
    """(captions, hidden): state of a one-directional GRU after the last word of each caption."""
    _, state = run_gru(gru, words)
    return state[-1]


def word_states(gru: nn.GRU, words: Words) -> Tensor:
    """(captions, words, hidden): mean of both directions of a Bi-GRU at each word, zero rows behind the last."""
    states, _ = run_gru(gru, words)
    forward, backward = states.data.chunk(2, dim=-1)
    return unpack(states._replace(data=(forward + backward) / 2))
