"""Batches that a loss may get, and runs of losses on them that repeat bit for bit."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from vsetune.config.component_specs import LossSpec
from vsetune.config.spec.base import Kind, Score
from vsetune.losses.loss_base import Items, Loss, LossContext, LossInputs, LossOutput
from vsetune.losses.loss_building import build_loss
from vsetune.networks.vsepp.network import order_similarity
from vsetune.quality.checks import Subject

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


def beside_the_similarity(inputs: LossInputs) -> Iterator[tuple[str, Tensor, Callable[[Tensor], LossInputs]]]:
    """What else a batch holds: its name, its numbers, and the batch with others in their place."""
    vectors = inputs.semantic_vectors
    if vectors is not None:
        yield "semantic_vectors", vectors, lambda given: replace(inputs, semantic_vectors=given)
    for side in ("images", "captions"):
        items = getattr(inputs, side)
        for name, numbers in vars(items).items() if items is not None else ():
            if numbers is not None:
                yield f"{side}.{name}", numbers, partial(_with_items, inputs, side, name)


def _with_items(inputs: LossInputs, side: str, name: str, numbers: Tensor) -> LossInputs:
    return replace(inputs, **{side: replace(getattr(inputs, side), **{name: numbers})})


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


_STEPS_PER_EPOCH = 3
_RATE = 0.05
_NEAR_AFTER = 40


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """The block draws the CPU's random numbers of this seed; those drawn afterwards are as without it.

    `torch.manual_seed` would seed every kind of device, which takes longer than a small loss.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


class LossSubject(Subject[LossSpec]):
    """The loss under check."""

    def surroundings(self, dtype: torch.dtype = torch.float32, **changes: Any) -> list[Surroundings]:
        """The combinations of network kind and similarity that it supports with these settings, in this precision."""
        return [
            Surroundings(each.kind, each.score, each.has_semantics, dtype)
            for each in surroundings_of(self.resolved(**changes))
        ]

    def kinds(self, dtype: torch.dtype = torch.float32, **changes: Any) -> list[Surroundings]:
        """One of `surroundings` per kind of network, for checks that do not depend on the range of similarities."""
        return list({each.kind: each for each in reversed(self.surroundings(dtype, **changes))}.values())[::-1]

    def build(self, *, seed: int = 0, dtype: torch.dtype = torch.float32, **changes: Any) -> Loss:
        """A fresh loss in its first epoch."""
        with seeded(seed):
            loss = build_loss(self.resolved(**changes), CONTEXT).to(dtype)
        loss.start_epoch(0)
        return loss


def output_of(loss: Loss, inputs: LossInputs, *, seed: int = 0) -> LossOutput:
    """The output with the random numbers of this seed, independent of earlier sampling."""
    with seeded(seed):
        return loss(inputs)


def value_of(loss: Loss, inputs: LossInputs, *, seed: int = 0) -> float:
    return float(output_of(loss, inputs, seed=seed).value.detach())


def infinite(loss: Loss, inputs: LossInputs, what: str) -> str | None:
    """A problem if the value or a gradient is not finite; None otherwise."""
    value = output_of(loss, inputs).value
    if not math.isfinite(value.detach()):
        return f"{what}: the loss is {float(value.detach()):g}, need a finite value"
    torch.autograd.backward(value)
    learned = [("its own parameters", parameter.grad) for parameter in loss.parameters()]
    for whose, gradient in [*(("the batch", leaf.grad) for leaf in leaves_of(inputs)), *learned]:
        if gradient is not None and not _numbers(gradient).isfinite().all():
            return f"{what}: the gradient of {whose} is not finite; look for a root, logarithm or division at 0"
    return None


def run_steps(loss: Loss, surroundings: Surroundings, steps: range) -> list[float]:
    """The values of these steps of a training in which captions move towards their images and the loss learns.

    Step k always has the same batch and the same random numbers. An epoch is three steps.
    """
    values = []
    for step in steps:
        if step % _STEPS_PER_EPOCH == 0:
            loss.start_epoch(step // _STEPS_PER_EPOCH)
        loss.zero_grad(set_to_none=True)
        inputs = pairs(surroundings, seed=step, nearness=step / _NEAR_AFTER)
        value = output_of(loss, inputs, seed=step).value
        torch.autograd.backward(value)
        loss.before_step()
        _descend(loss)
        loss.after_step()
        values.append(float(value.detach()))
    return values


def saved_and_loaded(module: nn.Module) -> dict[str, Any]:
    """The state as from a checkpoint: written to a file and read back as plain tensors."""
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    state: dict[str, Any] = torch.load(file, weights_only=True)
    return state


def equal_states(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two states have the same entries, bit for bit."""
    return first.keys() == second.keys() and all(_equal(first[name], second[name]) for name in first)


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return first.shape == second.shape and torch.equal(first, second)
    return bool(first == second)


@torch.no_grad()
def _descend(loss: Loss) -> None:
    for group in loss.parameter_groups():
        for parameter in group.parameters:
            if parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=_RATE if group.sgd_rate is None else group.sgd_rate)


def _numbers(gradient: Tensor) -> Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient
