"""Batches that a loss may get: every kind of network, every kind of similarity, pairs and images with captions.

All consist of sampled vectors of unit length, so that similarities and embeddings agree, as in a training.
n: images, m: captions, K embeddings per item, D numbers per embedding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vsetune.config.spec.kinds import Kind, Score
from vsetune.losses.loss_base import Items, LossContext, LossInputs
from vsetune.losses.loss_spec import LossSpec
from vsetune.networks.vsepp.order_similarity import order_similarity

D, K, SEMANTIC_SIZE = 4, 2, 3
CONCEPTS = 6
"""Number of images of the training split that is passed to the loss."""
PAIR_IDS = (0, 0, 1, 2, 3, 4)
"""Images of a batch of pairs: the first two captions are of the same image."""
OWNERS = (0, 0, 1, 2, 2)
"""Row of each caption's image, in a batch of three images with all their captions."""
UNBOUNDED_FACTOR = 5.0
EXTREME_FACTOR = 1e4
"""Factors on cosines for networks with unbounded similarities: the usual one, and the largest of a check."""
LOG_SCALE = -3.0
"""Mean of the logarithms of standard deviations of a probabilistic network."""

_KINDS: tuple[Kind, ...] = ("embedding", "several_embeddings", "probabilistic", "score")
_SCORES: tuple[Score, ...] = ("cosine", "unbounded", "probability", "order")

CONTEXT = LossContext(embedding_size=D, concepts=CONCEPTS)


@dataclass(frozen=True)
class Surroundings:
    """The network that a batch comes from. unbounded_factor: factor on cosines for unbounded similarities."""

    kind: Kind
    score: Score
    has_semantics: bool
    dtype: torch.dtype = torch.float32
    unbounded_factor: float = UNBOUNDED_FACTOR

    def __str__(self) -> str:
        return f"{self.kind.replace('_', ' ')}, {self.score}"


def surroundings_of(spec: LossSpec) -> Iterator[Surroundings]:
    """Every combination of network kind and similarity that a loss supports with these settings."""
    for kind in _KINDS:
        for score in _SCORES:
            if kind in spec.needed_kinds and score in spec.needed_scores:
                yield Surroundings(kind, score, spec.semantic_source is not None)


def unit_vectors(count: int, generator: torch.Generator, surroundings: Surroundings, size: int = D) -> Tensor:
    """(count, size), or (count, K, size) for a network with several embeddings; length 1, a leaf with gradient."""
    several = (K,) if surroundings.kind == "several_embeddings" else ()
    drawn = torch.randn(count, *several, size, generator=generator, dtype=torch.float64)
    return normalize(drawn, dim=-1).to(surroundings.dtype).requires_grad_()


def batch_of(
    surroundings: Surroundings, images: Tensor, captions: Tensor, *, image_ids: Tensor, caption_rows: Tensor,
    generator: torch.Generator,
) -> LossInputs:
    """A batch of given vectors (leaves). image_ids: (n,). caption_rows: (m,)."""
    semantics = None
    if surroundings.has_semantics:
        semantics = torch.randn(len(captions), SEMANTIC_SIZE, generator=generator, dtype=torch.float64)
        semantics = semantics.to(surroundings.dtype)
    similarity = similarity_of(images, captions, surroundings)
    inputs = LossInputs(similarity, image_ids, image_ids[caption_rows], caption_rows, semantics)
    if surroundings.kind == "score":
        return replace(inputs, similarity=similarity.detach().requires_grad_())
    return replace(
        inputs, images=_items(images, generator, surroundings), captions=_items(captions, generator, surroundings)
    )


def similarity_of(images: Tensor, captions: Tensor, surroundings: Surroundings) -> Tensor:
    """(n, m) similarities in the range of their kind; for several embeddings, of the nearest two."""
    if surroundings.score == "order":
        flat = [vectors.flatten(start_dim=1).abs() for vectors in (images, captions)]
        return order_similarity(*flat)
    if images.dim() == 3:
        cosines = torch.einsum("nkd,mld->nmkl", images, captions).flatten(start_dim=2).amax(dim=2)
    else:
        cosines = images @ captions.T
    if surroundings.score == "probability":
        return (UNBOUNDED_FACTOR * cosines).sigmoid()
    return surroundings.unbounded_factor * cosines if surroundings.score == "unbounded" else cosines


def pairs(
    surroundings: Surroundings, *, seed: int = 0, ids: Sequence[int] = PAIR_IDS, nearness: float = 0.0, size: int = D
) -> LossInputs:
    """A batch of pairs. ids: the image of each. nearness: 0 samples captions independently, 1 halfway to their images.
    """
    generator = torch.Generator().manual_seed(seed)
    images, captions = (unit_vectors(len(ids), generator, surroundings, size) for _ in range(2))
    if nearness:
        captions = normalize(captions.detach() + nearness * images.detach(), dim=-1).requires_grad_()
    rows = torch.arange(len(ids))
    return batch_of(
        surroundings, images, captions, image_ids=torch.tensor(ids), caption_rows=rows, generator=generator
    )


def images_with_captions(surroundings: Surroundings, *, seed: int = 0) -> LossInputs:
    """A batch of three images with all their five captions."""
    generator = torch.Generator().manual_seed(seed)
    images = unit_vectors(max(OWNERS) + 1, generator, surroundings)
    captions = unit_vectors(len(OWNERS), generator, surroundings)
    return batch_of(
        surroundings, images, captions, image_ids=torch.arange(len(images)), caption_rows=torch.tensor(OWNERS),
        generator=generator,
    )


def extreme_batches(surroundings: Surroundings, size: int) -> Iterator[tuple[str, LossInputs]]:
    """Extreme batches of pairs, with names: collapsed, opposed, separated, exchanged, all zero."""
    generator = torch.Generator().manual_seed(0)
    far = replace(surroundings, unbounded_factor=EXTREME_FACTOR)
    drawn = unit_vectors(size, generator, far).detach()
    same = drawn[:1].expand_as(drawn)
    for name, images, captions in (
        ("all items equal", same, same), ("all captions opposite to all images", same, -same),
        ("every caption equal to its image", drawn, drawn), ("every caption opposite to its image", drawn, -drawn),
        ("every caption equal to the next image", drawn, drawn.roll(1, dims=0)),
        ("all items zero", torch.zeros_like(drawn), torch.zeros_like(drawn)),
    ):
        leaves = [vectors.clone().requires_grad_() for vectors in (images, captions)]
        rows = torch.arange(size)
        yield name, batch_of(far, *leaves, image_ids=rows, caption_rows=rows, generator=generator)


def compared_again(inputs: LossInputs, surroundings: Surroundings) -> LossInputs:
    """The batch with its similarity recomputed, after its embeddings were changed in place."""
    if inputs.images is None or inputs.captions is None:
        return inputs
    return replace(inputs, similarity=similarity_of(inputs.images.vectors, inputs.captions.vectors, surroundings))


def leaves_of(inputs: LossInputs) -> list[Tensor]:
    """The leaves of the gradient: embeddings, log scales and residuals, or the similarity if there are none."""
    leaves = [
        value for items in (inputs.images, inputs.captions) if items is not None
        for value in (items.vectors, items.log_scales, items.residuals) if value is not None
    ]
    return leaves or [inputs.similarity]


def permuted(inputs: LossInputs, order: Tensor) -> LossInputs:
    """The same pairs in another order. order: (pairs,)."""
    parts = [None if items is None else _items_at(items, order) for items in (inputs.images, inputs.captions)]
    semantics = inputs.semantic_vectors
    return replace(
        inputs, similarity=inputs.similarity[order][:, order], image_ids=inputs.image_ids[order],
        caption_image_ids=inputs.caption_image_ids[order], images=parts[0], captions=parts[1],
        semantic_vectors=None if semantics is None else semantics[order],
    )


def _items_at(items: Items, order: Tensor) -> Items:
    scales, residuals = items.log_scales, items.residuals
    return Items(
        items.vectors[order], None if scales is None else scales[order],
        None if residuals is None else residuals[order],
    )


def _items(vectors: Tensor, generator: torch.Generator, surroundings: Surroundings) -> Items:
    if surroundings.kind == "several_embeddings":
        return Items(vectors, residuals=_drawn_like(vectors, generator))
    if surroundings.kind == "probabilistic":
        return Items(vectors, log_scales=_drawn_like(vectors, generator, LOG_SCALE))
    return Items(vectors)


def _drawn_like(vectors: Tensor, generator: torch.Generator, middle: float = 0.0) -> Tensor:
    drawn = middle + torch.randn(vectors.shape, generator=generator, dtype=torch.float64) / 2
    return drawn.to(vectors.dtype).requires_grad_()
