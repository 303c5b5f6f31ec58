"""Sequences of many sentences, each with the image of its caption, assembled from vectors that are computed once.

Sentences of a caption differ from it in a few words, and all have its image. Letters of shapes: C sentences, L words, N
images, R regions, D width, B sentences of a block, P places (words, then regions).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vsetune.networks.encoded import Encoded
from vsetune.networks.network_base import at_least_float32, word_mask
from vsetune.networks.tags.joint_encoder import JointEncoder
from vsetune.networks.tags.pair_blocks import pairs_of_a_block
from vsetune.networks.tags.token_inputs import TokenInputs


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
