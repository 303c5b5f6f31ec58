"""Masked copies of captions, from which a network learns to guess words (TAGS-DC, Section 2.1.1).

Letters of shapes: M captions, L ids, Q phrases, K copies. Random numbers come from the given generator, or from torch's
global one for the device of the tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_MASKED, _RANDOM = 0.8, 0.1
"""Shares of the chosen places; the rest keeps its word."""


@dataclass(frozen=True)
class MaskedCaptions:
    """tokens: (K, M, L), ids of each copy. is_chosen: (K, M, L) bool, the places to guess, some with their own word."""

    tokens: Tensor
    is_chosen: Tensor


def words_as_phrases(starts: Tensor, may_change: Tensor) -> Tensor:
    """(M, L, L) bool, phrase q of a caption are the pieces of the word that begins at q; many are empty.

    starts: (M, L) place of the first piece of each id's word. may_change: (M, L) bool, False for start, end, padding.
    """
    places = torch.arange(starts.shape[1], device=starts.device)
    return (starts[:, None] == places[:, None]) & may_change[:, None]


def phrase_rates(phrases: Tensor, rate: float) -> Tensor:
    """(M, Q) float64 probability that a phrase is chosen: mean over its ids of rate / phrases that hold the id.

    phrases: (M, Q, L) bool. An empty phrase has 0.
    """
    inside = phrases.double()
    shared = inside.sum(dim=1).clamp_min(1)
    sizes = inside.sum(dim=2)
    return (inside @ (rate / shared)[..., None]).squeeze(-1) / sizes.clamp_min(1)


def choose_phrases(
    phrases: Tensor, *, rate: float, copies: int, generator: torch.Generator | None = None
) -> Tensor:
    """(K, M, L) bool, the ids of the phrases that each copy chooses; where it would choose none, one at random.

    phrases: (M, Q, L) bool. A caption whose phrases are all empty has nothing chosen.
    """
    rates = phrase_rates(phrases, rate)
    draws = torch.rand((copies, *rates.shape), generator=generator, device=phrases.device, dtype=rates.dtype)
    is_chosen = draws < rates
    order = torch.rand(draws.shape, generator=generator, device=phrases.device).masked_fill(rates == 0, -1.0)
    first = torch.zeros_like(is_chosen).scatter(2, order.argmax(dim=2, keepdim=True), True) & (rates > 0)
    is_chosen |= first & ~is_chosen.any(dim=2, keepdim=True)
    return torch.einsum("kmq,mql->kml", is_chosen.float(), phrases.float()) > 0


def mask_captions(
    tokens: Tensor, is_chosen: Tensor, *, mask: int, ordinary: Tensor, generator: torch.Generator | None = None
) -> MaskedCaptions:
    """Of the chosen places 80 % get the mask, 10 % any ordinary word, 10 % keep their own; all others are unchanged.

    tokens: (M, L). is_chosen: (K, M, L) bool. mask: its id. ordinary: (W,) ids that may stand for a word.
    """
    fate = torch.rand(is_chosen.shape, generator=generator, device=tokens.device)
    drawn = torch.randint(len(ordinary), is_chosen.shape, generator=generator, device=tokens.device)
    changed = torch.where(fate < _MASKED, mask, torch.where(fate < _MASKED + _RANDOM, ordinary[drawn], tokens))
    return MaskedCaptions(torch.where(is_chosen, changed, tokens), is_chosen)
