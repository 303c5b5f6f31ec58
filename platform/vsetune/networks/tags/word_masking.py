"""Masked copies of captions: which ids may be masked, in which phrases (TAGS-DC, Section 2.1.1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vsetune.config.sources.trial_inputs import TextModel
from vsetune.networks.inputs import CaptionInputs
from vsetune.networks.network_base import word_mask
from vsetune.networks.parts.text_transformer import PieceIds, read_piece_ids

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


def choose_phrases(phrases: Tensor, *, rate: float, copies: int) -> Tensor:
    """(K, M, L) bool, the ids of the phrases that each copy chooses; where it would choose none, one at random.

    phrases: (M, Q, L) bool. A caption whose phrases are all empty has nothing chosen.
    """
    rates = phrase_rates(phrases, rate)
    draws = torch.rand((copies, *rates.shape), device=phrases.device, dtype=rates.dtype)
    is_chosen = draws < rates
    order = torch.rand(draws.shape, device=phrases.device).masked_fill(rates == 0, -1.0)
    first = torch.zeros_like(is_chosen).scatter(2, order.argmax(dim=2, keepdim=True), True) & (rates > 0)
    is_chosen |= first & ~is_chosen.any(dim=2, keepdim=True)
    return torch.einsum("kmq,mql->kml", is_chosen.float(), phrases.float()) > 0


def mask_captions(tokens: Tensor, is_chosen: Tensor, *, mask: int, ordinary: Tensor) -> MaskedCaptions:
    """Of the chosen places 80 % get the mask, 10 % any ordinary word, 10 % keep their own; all others are unchanged.

    tokens: (M, L). is_chosen: (K, M, L) bool. mask: its id. ordinary: (W,) ids that may stand for a word.
    """
    fate = torch.rand(is_chosen.shape, device=tokens.device)
    drawn = torch.randint(len(ordinary), is_chosen.shape, device=tokens.device)
    changed = torch.where(fate < _MASKED, mask, torch.where(fate < _MASKED + _RANDOM, ordinary[drawn], tokens))
    return MaskedCaptions(torch.where(is_chosen, changed, tokens), is_chosen)


_PADDING, _MASK, _FIRST_WORD = 0, 4, 5
"""Ids of the vocabulary of a data set: padding, mask, the first ordinary word."""


class CaptionIds:
    """text_model: None for words of the data set. vocabulary_size: V, of either."""

    def __init__(self, text_model: TextModel | None, vocabulary_size: int) -> None:
        self._text_model, self._size = text_model, vocabulary_size
        self._pieces: PieceIds | None = None

    def require_tokenizer(self) -> None:
        """ConfigError for a text model without its tokeniser, before anything trains."""
        if self._text_model is not None:
            self._piece_ids(torch.device("cpu"))

    def mask(self) -> int:
        """Id of the mask."""
        return _MASK if self._text_model is None else self._piece_ids(None).mask

    def ordinary(self, device: torch.device) -> Tensor:
        """(W,) ids that may stand for a word."""
        ids = torch.arange(self._size, device=device)
        if self._text_model is None:
            return ids[min(_FIRST_WORD, self._size - 1) :]
        pieces = self._piece_ids(device)
        return ids[~torch.isin(ids, torch.tensor([_PADDING, pieces.mask, *pieces.fixed], device=device))]

    def continues(self, device: torch.device) -> Tensor:
        """(V,) bool, True for a piece that belongs to the word before it."""
        if self._text_model is None:
            return torch.zeros(self._size, dtype=torch.bool, device=device)
        return self._piece_ids(device).continues

    def may_change(self, captions: CaptionInputs) -> Tensor:
        """(M, L) bool, False for start, end and padding, of a data set also for unknown words."""
        tokens = captions.tokens
        is_real = word_mask(captions.lengths, tokens.shape[1])
        if self._text_model is None:
            return is_real & (tokens >= _FIRST_WORD)
        return is_real & ~torch.isin(tokens, torch.tensor(self._piece_ids(tokens.device).fixed, device=tokens.device))

    def phrases(self, captions: CaptionInputs) -> Tensor:
        """(M, Q, L) bool, the units of masking: the phrases of a caption where it has some, else its words.

        A word includes all its pieces; start, end, padding and ids that may not change are in no phrase.
        """
        words = self._words(captions)
        if captions.phrases is None:
            return words
        found = captions.phrases & self.may_change(captions)[:, None]
        has_none = ~found.flatten(1).any(dim=1)
        return torch.cat((found, words & has_none[:, None, None]), dim=1)

    def _words(self, captions: CaptionInputs) -> Tensor:
        """(M, L, L) bool, see `words_as_phrases`."""
        tokens, may_change = captions.tokens, self.may_change(captions)
        places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        if self._text_model is None:
            return words_as_phrases(places, may_change)
        is_inner = self._piece_ids(tokens.device).continues[tokens] & may_change
        return words_as_phrases(torch.where(is_inner, 0, places).cummax(dim=1).values, may_change)

    def _piece_ids(self, device: torch.device | None) -> PieceIds:
        """What the tokeniser knows of ids; read now if the network was built without pre-trained weights."""
        assert self._text_model is not None
        found = self._pieces or read_piece_ids(self._text_model, self._size)
        self._pieces = found if device is None else found.on(device)
        return self._pieces
