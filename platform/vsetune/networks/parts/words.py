"""Word embeddings and recurrent layers over captions of different lengths."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from vsetune.networks.parts.network_devices import hand_derived
from vsetune.networks.parts.packing import Repeated, pack, spelt_out, unpack
from vsetune.networks.parts.recurrence import run_gru

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
