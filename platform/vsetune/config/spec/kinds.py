"""What a network gives and a loss takes. The check of network x loss pairs is made of these words."""

from __future__ import annotations

from typing import Literal

Kind = Literal["embedding", "several_embeddings", "probabilistic", "score"]
"""What a network makes of an item: one vector, K vectors, a Gaussian; or it only scores pairs."""

Score = Literal["cosine", "probability", "unbounded", "order"]
"""What its similarities are: in [-1, 1], in (0, 1), any number, or minus an order violation (0 at best)."""

ALL_KINDS: frozenset[Kind] = frozenset({"embedding", "several_embeddings", "probabilistic", "score"})
ALL_SCORES: frozenset[Score] = frozenset({"cosine", "probability", "unbounded", "order"})
