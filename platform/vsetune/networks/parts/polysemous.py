"""The parts that PVSE and PCME share: attention over local items, the polysemous head, the ends of a Bi-GRU.

Letters of shapes: n images or captions, P local items of the longest (regions or words), d their width, K heads, D
joint dimensions.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from vsetune.networks.network_base import at_least_float32, unit_length
from vsetune.networks.parts.layers import xavier_linear
from vsetune.networks.parts.packing import packed_mask, spelt_out, unpack
from vsetune.networks.parts.recurrence import Words, run_gru


class ItemAttention(nn.Module):
    """Sums of the items with weights A = softmax over the items of W2 tanh(W1 x), one column per head; no bias."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        hidden = max(1, width // 2)
        self.inner = nn.Linear(width, hidden, bias=False)
        self.outer = nn.Linear(hidden, heads, bias=False)
        nn.init.xavier_uniform_(self.inner.weight)
        nn.init.xavier_uniform_(self.outer.weight)

    def forward(self, items: Tensor, mask: Tensor) -> Tensor:
        """(n, K, d). items: (n, P, d), finite where padded. mask: (n, P) bool, at least one real item each."""
        return self.weights(items, mask).mT @ items

    def weights(self, items: Tensor, mask: Tensor) -> Tensor:
        """(n, P, K) non-negative, sums to 1 over the real items, 0 where padded; float32 or wider."""
        scores = at_least_float32(self.outer(self.inner(items).tanh()))
        return scores.masked_fill(~mask[..., None], float("-inf")).softmax(dim=1)


class PolysemousHead(nn.Module):
    """z_k = n(LayerNorm(g + r_k)), r_k = Dropout(logistic(W a_k + b)), a_k what head k attends to."""

    def __init__(self, width: int, embedding_size: int, *, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention = ItemAttention(width, heads)
        self.local_map = xavier_linear(width, embedding_size)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(embedding_size)

    def forward(self, whole: Tensor, items: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(n, K, D) embeddings of unit length and (n, K, D) residuals. whole: (n, D), g. items, mask: as above."""
        attended = self.local_map(self.attention(items, mask))
        residuals = self.dropout(at_least_float32(attended).sigmoid())
        return unit_length(self.norm(at_least_float32(whole)[:, None] + residuals)), residuals


def mean_of_items(items: Tensor, mask: Tensor) -> Tensor:
    """(n, d) mean over the real items: average pooling."""
    shares = mask.to(items.dtype)
    shares = shares / shares.sum(dim=1, keepdim=True)
    return (shares[:, None, :] @ items).squeeze(1)


def end_states(gru: nn.GRU, words: Words, which: Literal["final", "legacy"]) -> Tensor:
    """(captions, 2 hidden): both directions of a Bi-GRU at their end, forward first.

    `legacy` takes the output at the last word instead, where the backward direction has read only that word.
    """
    states, final = run_gru(gru, words)
    if which == "final":
        return torch.cat((final[0], final[1]), dim=-1)
    padded = unpack(states)
    last = packed_mask(states).sum(dim=1) - 1
    return padded[torch.arange(len(last), device=padded.device), last]


def unpacked(words: Words) -> tuple[Tensor, Tensor]:
    """(captions, longest, d) word vectors, zero behind the last, and the (captions, longest) mask of real ones."""
    packed = spelt_out(words)
    return unpack(packed), packed_mask(packed)
