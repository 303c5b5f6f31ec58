"""Which entries of a similarity matrix are positives and negatives, and what the queries of a batch choose from.

All that is neither positive nor negative is ignored. N: images (rows), M: captions (columns), P: remembered pairs.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from vsetune.losses.base import LossInputs, Memory, at_least_float32

SameImage = Literal["decided", "diagonal"]


class Candidates(NamedTuple):
    """What the two queries of every pair are compared with: scores, minus infinity where an item is no negative.

    images: (N, M + P), row i belongs to image i. captions: (N + P, M), column j belongs to caption j. Without a memory
    both are the same matrix. rows: (M,) row of the image of pair j; None where pair j stands on the diagonal.
    """

    images: Tensor
    captions: Tensor
    rows: Tensor | None


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


def batch_negatives(inputs: LossInputs, same_image_rule: SameImage) -> Tensor:
    """(N, M) bool negatives of a batch of either unit.

    In a batch of images all captions of an image are its positives, so the rule matters in batches of pairs only.
    """
    return pair_negatives(inputs, same_image_rule) if is_pairs(inputs) else ~same_image(inputs)


def pair_similarity(inputs: LossInputs, similarity: Tensor) -> Tensor:
    """(M,) similarity of every caption and its image."""
    if is_pairs(inputs):
        return similarity.diagonal()
    return similarity.gather(0, inputs.caption_rows[None, :])[0]


def candidates_of_batch(scores: Tensor, negatives: Tensor, rows: Tensor | None) -> Candidates:
    """Candidates without a memory. scores: (N, M). negatives: (N, M) bool. rows: see `Candidates`."""
    among = scores.masked_fill(~negatives, float("-inf"))
    return Candidates(among, among, rows)


def candidates(
    inputs: LossInputs, scores: Tensor, negatives: Tensor, memory: Memory | None, same_image_rule: SameImage
) -> Candidates:
    """The negatives of the batch, then those of the memory. scores: (N, M), by which the loss ranks and penalises.

    memory: its similarities lifted in the same way as `scores`. `decided`, and any batch of images: remembered items
    of the query's own image are no negatives. `diagonal`: they are, even an earlier view of the very same pair, since
    remembered pairs are known by their image only.
    """
    batch = candidates_of_batch(scores, negatives, None if is_pairs(inputs) else inputs.caption_rows)
    if memory is None:
        return batch
    captions = at_least_float32(memory.caption_similarity)
    images = at_least_float32(memory.image_similarity)
    if same_image_rule == "decided" or batch.rows is not None:
        captions = captions.masked_fill(inputs.image_ids[:, None] == memory.image_ids[None, :], float("-inf"))
        images = images.masked_fill(memory.image_ids[:, None] == inputs.caption_image_ids[None, :], float("-inf"))
    return Candidates(
        torch.cat([batch.images, captions], dim=1), torch.cat([batch.captions, images], dim=0), batch.rows
    )


def diagonal(similarity: Tensor) -> Tensor:
    """(B, B) bool, True where row and column are the same pair."""
    return torch.eye(similarity.shape[0], dtype=torch.bool, device=similarity.device)
