"""Losses of TAGS-DC around masked captions and synthetic sentences (Fan et al. 2022, Eq. 1, 7, 8 and 9)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from vsetune.networks.encoded import Encoded
from vsetune.networks.network_base import at_least_float32, word_mask
from vsetune.networks.tags.joint_encoder import JointEncoder, TokenInputs
from vsetune.networks.tags.pair_blocks import pairs_of_a_block


def mean_by_owner(values: Tensor, owners: Tensor) -> Tensor:
    """Scalar: mean over the values of every owner, mean over owners; 0 without values. owners: (values,) from 0."""
    if len(values) == 0:
        return values.sum()
    counts = owners.bincount()
    return (values / counts[owners]).sum() / (counts > 0).sum()


def masked_word_loss(logits: Tensor, words: Tensor, captions: Tensor) -> Tensor:
    """Scalar L_MLM (Eq. 1), and L_WoC (Eq. 9) of places in synthetic sentences: minus log probability of right words.

    logits: (T, V), one row per place of any copy or sentence. words: (T,) ids that the caption has there. captions:
    (T,) which caption the place belongs to.
    """
    return mean_by_owner(functional.cross_entropy(logits, words, reduction="none"), captions)


def synthetic_triplets(matched: Tensor, synthetic: Tensor, owners: Tensor, *, margin: float) -> Tensor:
    """Scalar L_ISTM (Eq. 7): mean of [margin - ITM(I, T) + ITM(I, T~)]+ over the sentences of every caption.

    matched: (M,) scores of the captions with their images. synthetic: (C,) scores of sentences with the same image.
    owners: (C,) row in `matched` of the caption each was made from.
    """
    return mean_by_owner((margin - matched[owners] + synthetic).relu(), owners)


def word_discrimination(
    logits: Tensor, is_same: Tensor, is_counted: Tensor, owners: Tensor, *, replaced_weight: float = 1.0,
    same_weight: float = 1.0,
) -> Tensor:
    """Scalar L_WoD (Eq. 8): is the word at a place that of the caption (class 1), or was it replaced (class 0)?

    logits: (C, L, 2). is_same: (C, L) bool. is_counted: (C, L) bool, False for start, end and padding. owners: (C,).
    The weights multiply the losses of both classes; the mean divides by the number of places (released: 1 and 0.11).
    """
    losses = functional.cross_entropy(logits.flatten(0, 1), is_same.flatten().long(), reduction="none")
    weights = losses.new_tensor([replaced_weight, same_weight])[is_same.long()]
    of_places = (losses.view_as(weights) * weights).masked_fill(~is_counted, 0.0)
    counts = is_counted.sum(dim=1)
    has_words = counts > 0
    return mean_by_owner((of_places.sum(dim=1) / counts.clamp_min(1))[has_words], owners[has_words])


@dataclass(frozen=True)
class Block:
    """sentences: (B,) their numbers. sequence: (B, P, 4 D), as `JointEncoder.prepared` gives them. is_real: (B, P)."""

    sentences: Tensor
    sequence: Tensor
    is_real: Tensor


def blocks_of(
    inputs: TokenInputs, encoder: JointEncoder, images: Encoded, rows: Tensor, *, tokens: Tensor, lengths: Tensor
) -> Iterator[Block]:
    """All sentences, longest first; without gradient and dropout. rows: (C,) image of each; tokens: (C, L)."""
    if len(tokens) == 0:
        return
    assert images.lengths is not None
    places, regions = torch.arange(tokens.shape[1], device=tokens.device), images.vectors.shape[1]
    keys, word = torch.unique(tokens * tokens.shape[1] + places, return_inverse=True)
    words = at_least_float32(inputs.of_ids(keys // tokens.shape[1], keys % tokens.shape[1]))
    table = encoder.prepared(torch.cat((images.vectors.flatten(0, 1), words)))
    size = pairs_of_a_block(images.vectors, places=len(places) + regions)
    for some in torch.split(lengths.argsort(descending=True, stable=True), size):
        longest = int(lengths[some].max())
        of_image = rows[some, None] * regions + torch.arange(regions, device=rows.device)
        index = torch.cat((word[some, :longest] + images.vectors.shape[0] * regions, of_image), dim=1)
        is_real = torch.cat((word_mask(lengths[some], longest), word_mask(images.lengths[rows[some]], regions)), dim=1)
        yield Block(some, table.index_select(0, index.flatten()).view(*index.shape, -1), is_real)
