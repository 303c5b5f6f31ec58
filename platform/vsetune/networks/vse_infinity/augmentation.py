"""Dropping regions and words while VSE-infinity trains.

Random choices, and all values that determine lengths, are on the host: no code waits for a GPU to learn the new sizes.
Uses torch's global generator, which gives the same numbers whatever the device of the training.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vsetune.networks.network_base import word_mask
from vsetune.networks.parts.network_devices import beside

MASK_TOKEN = 4
"""Id of the mask word in every vocabulary."""

_MASKED, _REPLACED = 0.5, 0.1
"""Shares of the selected words; the rest is deleted (as in the released code, despite its comment `kept`)."""
_ITSELF = -1
"""In place of an id that stays."""
_WHOLE_GRID = 0.2
"""Share of images that keep all their cells in grid mode."""


def drop_regions(mask: Tensor, probability: float) -> Tensor:
    """The mask with each region left out independently; at least one region of an image stays.

    mask: (images, regions) bool, True for real regions, on the host.
    """
    return _thinned(mask, torch.full((len(mask), 1), probability))


def drop_cells(mask: Tensor, probability: float) -> Tensor:
    """The grid rule: an image draws rho from U(0, 1); above 0.2 each cell is left out with probability x rho."""
    rho = torch.rand(len(mask), 1)
    return _thinned(mask, torch.where(rho > _WHOLE_GRID, probability * rho, 0.0))


def _thinned(mask: Tensor, probability: Tensor) -> Tensor:
    draws = torch.rand(mask.shape).masked_fill(~mask, -1.0)
    is_kept = (draws >= probability) & mask
    # the largest draw is kept whenever anything is, so keeping it always changes only images that would lose all
    return is_kept.scatter(1, draws.argmax(dim=1, keepdim=True), True)


def drop_words(tokens: Tensor, lengths: Tensor, *, probability: float, vocabulary_size: int) -> tuple[Tensor, Tensor]:
    """Captions with words masked (50 % of those selected), replaced by any word (10 %) or deleted (40 %).

    tokens: (captions, words); lengths: (captions,), on the host. Start and end are words like others. Returns new
    tokens of the same shape, the kept words moved to the front, and new lengths, on the host; at least one word of a
    caption stays.
    """
    may_change = word_mask(lengths, tokens.shape[1])
    starts = torch.arange(tokens.shape[1]).expand(tokens.shape)
    return _changed(tokens, lengths, may_change, starts, probability, mask=MASK_TOKEN, vocabulary_size=vocabulary_size)


def drop_word_pieces(
    tokens: Tensor, lengths: Tensor, *, probability: float, mask: int, fixed: Sequence[int], continues: Tensor
) -> tuple[Tensor, Tensor]:
    """As `drop_words`, for words of several pieces: all pieces of a word are treated alike, each replaced by its own
    random id. The word boundaries are read from the tokens, which waits for a GPU if they are there.

    mask: id of [MASK]. fixed: ids that never change ([CLS], [SEP]). continues: (vocabulary,) bool, True for pieces that
    are not the first of their word, on the host. At least one word of a caption that has any stays.
    """
    here = tokens.cpu()
    may_change = word_mask(lengths, tokens.shape[1]) & ~torch.isin(here, torch.tensor(fixed))
    positions = torch.arange(tokens.shape[1]).expand(tokens.shape)
    starts = torch.where(continues[here] & may_change, 0, positions).cummax(dim=1).values
    return _changed(
        tokens, lengths, may_change, starts, probability, mask=mask, vocabulary_size=len(continues)
    )


def _changed(
    tokens: Tensor, lengths: Tensor, may_change: Tensor, starts: Tensor, probability: float, *, mask: int,
    vocabulary_size: int,
) -> tuple[Tensor, Tensor]:
    """may_change: (captions, ids) bool. starts: (captions, ids) position of the first piece of each id's word. All but
    the tokens is on the host."""
    is_real = word_mask(lengths, tokens.shape[1])
    is_selected = (torch.rand(tokens.shape).gather(1, starts) < probability) & may_change
    fate = torch.rand(tokens.shape).gather(1, starts)
    random_words = torch.randint(1, vocabulary_size, tokens.shape)
    instead = torch.full(tokens.shape, _ITSELF).masked_fill(is_selected & (fate < _MASKED), mask)
    is_replaced = is_selected & (fate >= _MASKED) & (fate < _MASKED + _REPLACED)
    instead = torch.where(is_replaced, random_words, instead)
    is_kept = is_real & ~(is_selected & (fate >= _MASKED + _REPLACED))
    # a caption that would lose everything keeps the word whose fate was nearest to staying
    least_lost = fate.masked_fill(~may_change, 2.0).argmin(dim=1, keepdim=True)
    is_saved = may_change & (starts == starts.gather(1, least_lost))
    has_word = (is_kept & may_change).any(dim=1, keepdim=True)
    is_kept = torch.where(has_word, is_kept, is_kept | is_saved)
    new_lengths = is_kept.sum(dim=1)
    to_front = (~is_kept).to(torch.uint8).argsort(dim=1, stable=True)
    instead = instead.gather(1, to_front).masked_fill(~word_mask(new_lengths, tokens.shape[1]), 0)
    to_front, instead = beside(torch.stack((to_front, instead)), tokens)
    return torch.where(instead == _ITSELF, tokens.gather(1, to_front), instead), new_lengths
