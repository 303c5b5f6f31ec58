"""Positives, negatives and candidates of a similarity matrix, and the hinges of both query directions."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vsetune.losses.loss_base import LossInputs, Memory, Selection, at_least_float32
from vsetune.losses.parts.spec_fields import SameImage


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
    return pair_negatives(inputs, same_image_rule) if inputs.are_pairs else ~same_image(inputs)


def pair_similarity(inputs: LossInputs, similarity: Tensor) -> Tensor:
    """(M,) similarity of every caption and its image."""
    if inputs.are_pairs:
        return similarity.diagonal()
    return similarity.gather(0, inputs.caption_rows[None, :])[0]


def candidates(
    inputs: LossInputs, scores: Tensor, negatives: Tensor, memory: Memory | None, same_image_rule: SameImage
) -> Candidates:
    """The negatives of `pools`. scores: (N, M), by which the loss ranks and penalises."""
    met = pools(inputs, scores, negatives, memory, same_image_rule)
    images = captions = met.images.masked_fill(~met.image_negatives, float("-inf"))
    if met.captions is not met.images:
        captions = met.captions.masked_fill(~met.caption_negatives, float("-inf"))
    return Candidates(images, captions, None if inputs.are_pairs else inputs.caption_rows)


def pools(
    inputs: LossInputs, scores: Tensor, negatives: Tensor, memory: Memory | None, same_image_rule: SameImage
) -> Pools:
    """Scores (N, M) and negatives (N, M) of the batch, then those of the memory.

    memory: its similarities lifted in the same way as `scores`. `decided`, and any batch of images: remembered items
    of the query's own image are no negatives. `diagonal`: they are, even an earlier view of the very same pair, since
    remembered pairs are known by their image only.
    """
    if memory is None:
        return Pools(scores, negatives, scores, negatives)
    captions = at_least_float32(memory.caption_similarity)
    images = at_least_float32(memory.image_similarity)
    if same_image_rule == "decided" or not inputs.are_pairs:
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


class QueryTerms(NamedTuple):
    """Terms per pair, >= 0, not yet reduced. images: (M,) of image queries. captions: (M,) of caption queries."""

    images: Tensor
    captions: Tensor

    def total(self) -> Tensor:
        """Sum over the queries of both directions (never divided by B, as in every reference)."""
        return self.images.sum() + self.captions.sum()

    def active(self) -> QueryTerms:
        """Bool per query: its term is positive."""
        return QueryTerms(self.images.detach() > 0, self.captions.detach() > 0)


def mined_selection(
    inputs: LossInputs, scores: Tensor, negatives: Tensor, active: QueryTerms, *, is_proxy: bool = False
) -> Selection:
    """The scores that a loss mined its hardest negatives from. active: bool per pair. scores, negatives: (N, M), of
    the batch alone. is_proxy: always true with a memory, which may contain harder negatives."""
    images = active.images
    if not inputs.are_pairs:  # an image query is active if it is for one of its pairs
        images = torch.zeros_like(inputs.image_ids).index_add_(0, inputs.caption_rows, images.long()) > 0
    is_proxy = is_proxy or inputs.memory is not None
    return Selection(scores.detach(), negatives, images, active.captions, is_proxy=is_proxy)


def hardest_scores(among: Candidates) -> QueryTerms:
    """Score of the hardest negative of each query, minus infinity without one. On a tie one, not all, gets gradient."""
    by_image = among.images.max(dim=1).values
    return QueryTerms(by_image if among.rows is None else by_image[among.rows], among.captions.max(dim=0).values)


def hinge_of_each(among: Candidates, matched: Tensor, *, margin: float | Tensor) -> QueryTerms:
    """[margin + negative - positive]+ of every query and candidate: images (M, M + P), captions (N + P, M).

    matched: (M,) similarity of the pairs. margin: >= 0, units of similarity.
    """
    lifted = margin + among.images
    by_pair = lifted if among.rows is None else lifted[among.rows]
    by_caption = lifted if among.captions is among.images else margin + among.captions
    return QueryTerms((by_pair - matched[:, None]).relu(), (by_caption - matched[None, :]).relu())


def summed_hinges(among: Candidates, matched: Tensor, *, margin: float | Tensor) -> QueryTerms:
    """Per query the sum over its negatives of [margin + negative - positive]+ (LSH)."""
    hinges = hinge_of_each(among, matched, margin=margin)
    return QueryTerms(hinges.images.sum(dim=1), hinges.captions.sum(dim=0))


def hardest_hinges(among: Candidates, matched: Tensor, *, margin: float) -> QueryTerms:
    """Per query the hinge of its hardest negative, [margin + max score - positive]+, 0 without one (LMH, LSEH)."""
    hardest = hardest_scores(among)
    return QueryTerms((margin + hardest.images - matched).relu(), (margin + hardest.captions - matched).relu())
