"""Which entries of a similarity matrix are positives and negatives; all that are neither are ignored."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from vsetune.losses.base import LossInputs

SameImage = Literal["decided", "diagonal"]


def same_image(inputs: LossInputs) -> Tensor:
    """(N, M) bool: the caption describes the image of the row."""
    return inputs.image_ids[:, None] == inputs.caption_image_ids[None, :]


def is_pairs(inputs: LossInputs) -> bool:
    """True if row i and column i are a pair (one image row per caption)."""
    images, captions = inputs.similarity.shape
    return images == captions


def pair_negatives(inputs: LossInputs, same_image_rule: SameImage) -> Tensor:
    """(B, B) bool negatives of a batch of pairs; the diagonal is never one.

    `decided`: other captions of the same image are no negatives (ignored). `diagonal`: they are, as in the released
    code of VSE++ and its followers.
    """
    if same_image_rule == "diagonal":
        return ~diagonal(inputs.similarity)
    return (inputs.image_ids[:, None] != inputs.caption_image_ids[None, :]).fill_diagonal_(False)


def diagonal(similarity: Tensor) -> Tensor:
    """(B, B) bool, True where row and column are the same pair."""
    return torch.eye(similarity.shape[0], dtype=torch.bool, device=similarity.device)
