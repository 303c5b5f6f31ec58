"""Which entries of a similarity matrix are positives and negatives, and the candidates of the queries of a batch.

Entries that are neither positive nor negative are ignored. N: images (rows), M: captions (columns), P: remembered
pairs.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from vsetune.losses.loss_base import LossInputs, Memory, at_least_float32

SameImage = Literal["decided", "diagonal"]


class Candidates(NamedTuple):
    """Candidates of the two queries of every pair: scores, minus infinity where an item is no negative.

    images: (N, M + P), row i belongs to image i. captions: (N + P, M), column j belongs to caption j. Without a memory
    both are the same matrix. rows: (M,) row of the image of pair j; None where pair j stands on the diagonal.
    """

    images: Tensor
    captions: Tensor
    rows: Tensor | None


class Pools(NamedTuple):
    """Candidates of the queries of both directions: the batch, then the memory. Without a memory both are the same
    matrix.

    images: (N, M + P) scores of image queries, captions: (N + P, M) of caption queries. The other two: bool of the same
    shapes, which of them are negatives.
    """

    images: Tensor
    image_negatives: Tensor
    captions: Tensor
    caption_negatives: Tensor


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


def pools_of_batch(scores: Tensor, negatives: Tensor) -> Pools:
    """Pools without a memory. scores: (N, M). negatives: (N, M) bool."""
    return Pools(scores, negatives, scores, negatives)


def candidates(
    inputs: LossInputs, scores: Tensor, negatives: Tensor, memory: Memory | None, same_image_rule: SameImage
) -> Candidates:
    """The negatives of `pools`. scores: (N, M), by which the loss ranks and penalises."""
    rows = None if is_pairs(inputs) else inputs.caption_rows
    if memory is None:
        return candidates_of_batch(scores, negatives, rows)
    met = pools(inputs, scores, negatives, memory, same_image_rule)
    return Candidates(
        met.images.masked_fill(~met.image_negatives, float("-inf")),
        met.captions.masked_fill(~met.caption_negatives, float("-inf")), rows,
    )


def pools(
    inputs: LossInputs, scores: Tensor, negatives: Tensor, memory: Memory | None, same_image_rule: SameImage
) -> Pools:
    """Scores (N, M) and negatives (N, M) of the batch, then those of the memory.

    memory: its similarities lifted in the same way as `scores`. `decided`, and any batch of images: remembered items
    of the query's own image are no negatives. `diagonal`: they are, even an earlier view of the very same pair, since
    remembered pairs are known by their image only.
    """
    if memory is None:
        return pools_of_batch(scores, negatives)
    captions = at_least_float32(memory.caption_similarity)
    images = at_least_float32(memory.image_similarity)
    if same_image_rule == "decided" or not is_pairs(inputs):
        other_captions = inputs.image_ids[:, None] != memory.image_ids[None, :]
        other_images = memory.image_ids[:, None] != inputs.caption_image_ids[None, :]
    else:
        other_captions = torch.ones_like(captions, dtype=torch.bool)
        other_images = torch.ones_like(images, dtype=torch.bool)
    return Pools(
        torch.cat([scores, captions], dim=1), torch.cat([negatives, other_captions], dim=1),
        torch.cat([scores, images], dim=0), torch.cat([negatives, other_images], dim=0),
    )


def diagonal(similarity: Tensor) -> Tensor:
    """(B, B) bool, True where row and column are the same pair."""
    return torch.eye(similarity.shape[0], dtype=torch.bool, device=similarity.device)
