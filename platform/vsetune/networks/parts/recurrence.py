"""Word embeddings and recurrent layers over captions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from vsetune.networks.network_base import at_least_float32
from vsetune.networks.parts.cpu.sequences import gru_states, shared_states, states_of_all
from vsetune.networks.parts.network_devices import hand_derived
from vsetune.networks.parts.packing import Repeated, pack, spelt_out, unpack


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
            found = gru_states(at_least_float32(rows), _parameters(gru, suffix), order)
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
