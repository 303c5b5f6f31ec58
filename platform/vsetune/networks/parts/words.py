"""Word embeddings and recurrent layers over captions of different lengths."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from vsetune.networks.parts.packing import pack, unpack
from vsetune.networks.parts.recurrence import run_gru

_EMBEDDING_BOUND = 0.1


def word_embedding(vocabulary_size: int, word_size: int) -> nn.Embedding:
    """Trained word vectors, drawn from U(-0.1, 0.1) as in VSE++; the padding row is nothing special."""
    embedding = nn.Embedding(vocabulary_size, word_size)
    nn.init.uniform_(embedding.weight, -_EMBEDDING_BOUND, _EMBEDDING_BOUND)
    return embedding


def embed_words(embedding: nn.Embedding, tokens: Tensor, lengths: Tensor) -> PackedSequence:
    """Word vectors of all captions without padding. Ids are packed before the look-up, which is cheaper than after.

    lengths: (captions,) of tokens (captions, words); a GPU is waited for unless they are on the host.
    """
    ids = pack(tokens, lengths.cpu())
    return ids._replace(data=embedding(ids.data))


def last_state(gru: nn.GRU, words: PackedSequence) -> Tensor:
    """(captions, hidden): state of a one-directional GRU after the last word of each caption."""
    _, state = run_gru(gru, words)
    return state[-1]


def word_states(gru: nn.GRU, words: PackedSequence) -> Tensor:
    """(captions, words, hidden): mean of both directions of a Bi-GRU at each word, zero rows behind the last."""
    states, _ = run_gru(gru, words)
    forward, backward = states.data.chunk(2, dim=-1)
    return unpack(states._replace(data=(forward + backward) / 2))
