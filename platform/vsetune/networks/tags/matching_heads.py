"""What TAGS reads off its transformer: whether a caption is of an image, and which word stands at a place."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from vsetune.networks.tags.joint_encoder import bert_linear


class MatchingHead(nn.Module):
    """logit = w'(tanh(W h)), h the state of the first word; ITM of the paper before its sigmoid."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.pooled = bert_linear(size, size, size=size)
        self.score = bert_linear(size, 1, size=size)

    def forward(self, states: Tensor) -> Tensor:
        """(...). states: (..., D)."""
        out: Tensor = self.score(self.pooled(states).tanh()).squeeze(-1)
        return out


class WordHead(nn.Module):
    """Logits of every word: LN(gelu(W h)) times the word embeddings, which are the network's own, plus a bias."""

    def __init__(self, size: int, vocabulary_size: int, *, epsilon: float) -> None:
        super().__init__()
        self.transform = bert_linear(size, size, size=size)
        self.norm = nn.LayerNorm(size, eps=epsilon)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def forward(self, states: Tensor, words: Tensor) -> Tensor:
        """(..., V). states: (..., D); words: (V, D), weights of the embedding."""
        hidden = self.norm(functional.gelu(self.transform(states)))
        return functional.linear(hidden, words, self.bias)
