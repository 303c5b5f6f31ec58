"""Outputs of networks and inputs of losses. The check of network x loss pairs uses these words."""

from __future__ import annotations

from typing import Literal

Kind = Literal["embedding", "several_embeddings", "probabilistic", "score"]
"""Output of a network for an item: one vector, K vectors, a Gaussian; or it only scores pairs."""

Score = Literal["cosine", "probability", "unbounded", "order"]
"""Range of its similarities: in [-1, 1], in (0, 1), any number, or minus an order violation (0 at best)."""

ALL_KINDS: frozenset[Kind] = frozenset({"embedding", "several_embeddings", "probabilistic", "score"})
ALL_SCORES: frozenset[Score] = frozenset({"cosine", "probability", "unbounded", "order"})
