"""CGMN's node matching, a loss of training alone: every word of a caption finds its most similar region.

    Q_ic = sum over words l of max over regions r of cos(U_cl, V_ir)
    L = sum_ij [m + Q_ij - Q_ii]+ + sum_ij [m + Q_ij - Q_jj]+ over the negatives

Letters of shapes: n images, m captions, R regions, L words, D dimensions, B pairs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vsetune.networks.network_base import unit_length

_NUMBERS_PER_BLOCK = 2**24  # cosines held at once, 64 MiB of float32; a matter of memory only


def node_matching_scores(
    regions: Tensor, is_region: Tensor, words: Tensor, is_word: Tensor, unit: Callable[[Tensor], Tensor] = unit_length
) -> Tensor:
    """(n, m) Q, at most the number of words. regions: (n, R, D). words: (m, L, D). is_region, is_word: bool masks.

    unit: function that normalises vectors to unit length. The gradient of a word reaches one region, also on a tie.
    Computed in blocks of captions.
    """
    regions, words = unit(regions), unit(words)
    held = max(1, _NUMBERS_PER_BLOCK // (is_region.numel() * words.shape[1]))
    scores = []
    with torch.autocast(regions.device.type, enabled=False):
        for start in range(0, len(words), held):
            some, are_words = words[start : start + held], is_word[start : start + held]
            cosines = (regions.flatten(0, 1) @ some.flatten(0, 1).T).view(*is_region.shape, *are_words.shape)
            found = cosines.masked_fill(~is_region[:, :, None, None], float("-inf")).max(dim=1).values
            scores.append(found.masked_fill(~are_words, 0.0).sum(dim=2))
    return torch.cat(scores, dim=1)


def node_matching_loss(scores: Tensor, negatives: Tensor, *, margin: float) -> Tensor:
    """Sum of the hinges of both directions. Scalar >= 0.

    scores: (B, B) Q of pairs. negatives: (B, B) bool, False on the diagonal; where False there is no term.
    """
    matched = scores.diagonal()
    hinges = (margin + scores - matched[:, None]).relu() + (margin + scores - matched[None, :]).relu()
    return hinges.masked_fill(~negatives, 0.0).sum()
