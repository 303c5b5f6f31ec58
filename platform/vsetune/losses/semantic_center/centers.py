"""The centres of the semantic centre loss: a table, the forces on it, its updates (Malali and Keller, Eq. 6, 7)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vsetune.errors import ConfigError
from vsetune.losses.loss_base import Counters, LossContext
from vsetune.losses.parts.loss_devices import is_on_cpu
from vsetune.losses.parts.products import clamped_squared_distances
from vsetune.losses.semantic_center.spec import CenterUpdate, SemanticCenterSpec
from vsetune.metrics.vectors import unit_length


class CenterTerm(NamedTuple):
    """value: L_C with its mean over the pairs, gradient to the embeddings and the assignment. parts: to log."""

    value: Tensor
    parts: dict[str, Tensor]


class Centers(Counters, ABC):
    """table: (centres, D), the only parameter trained by plain SGD. Training forward, `set_gradient`, optimizer and
    `after_step` are called in this order; values that the forward stores for the other two do not outlast the step."""

    table: nn.Parameter

    def __init__(self, spec: SemanticCenterSpec, table: Tensor) -> None:
        super().__init__()
        self.spec = spec
        self.table = nn.Parameter(unit_length(table) if spec.on_sphere else table)
        self._gradient: Tensor | None = None

    @abstractmethod
    def forward(self, images: Tensor, captions: Tensor, ids: Tensor) -> CenterTerm:
        """L_C of B pairs. images, captions: (B, D). ids: (B,) concept of each pair.

        The value always has a gradient, even if the embeddings of a frozen network have none.
        """

    @abstractmethod
    def continue_from(self, previous: Centers) -> None:
        """Start from the centres of the phase before. Raises ConfigError if that is impossible."""

    def set_gradient(self) -> None:
        """Set the gradient of the table to that of the last training forward."""
        if self._gradient is not None:
            self.table.grad, self._gradient = self._gradient, None

    def after_step(self) -> None:
        """Advance schedules, and project centres back to the sphere if required."""

    @property
    def _is_learning(self) -> bool:
        return self.training and torch.is_grad_enabled()


class ConceptCenters(Centers):
    """One centre per training image (Eq. 6). seen: (N,) bool, concepts met in training.

    The gradient is sparse where the optimizer takes that: 29,000 centres are then neither read nor written for the 128
    of a batch.
    """

    seen: Tensor

    def __init__(self, spec: SemanticCenterSpec, context: LossContext) -> None:
        shape = (context.concepts, context.embedding_size)
        super().__init__(spec, torch.zeros(shape) if spec.center_start == "first_seen" else _normal(*shape))
        self.register_buffer("seen", torch.zeros(context.concepts, dtype=torch.bool))
        self._rows: Tensor | None = None
        self._is_sparse = context.sparse_gradients

    def forward(self, images: Tensor, captions: Tensor, ids: Tensor) -> CenterTerm:
        spec = self.spec
        if self._is_learning:
            self._meet(images, captions, ids)
        own = nn.functional.embedding(ids, self.table, sparse=self._is_sparse)
        image_hinges = concept_hinges(images, own, delta=spec.delta)
        caption_hinges = concept_hinges(captions, own, delta=spec.delta)
        if self._is_learning:
            movement = concept_movement(images, captions, own, ids, delta=spec.delta)
            rows = table_gradient(movement, spec.center_update)
            gradient = torch.sparse_coo_tensor(ids[None, :], rows, self.table.shape, check_invariants=False)
            self._gradient = gradient if self._is_sparse else gradient.to_dense()
            self._rows = ids
        outside = (torch.cat([image_hinges, caption_hinges]).detach() > 0).to(images.dtype).mean()
        value = image_hinges.mean() + caption_hinges.mean()
        return CenterTerm(value, {"center": value.detach(), "outside_share": outside})

    @torch.no_grad()
    def after_step(self) -> None:
        if self.spec.on_sphere and self._rows is not None:
            self.table[self._rows] = unit_length(self.table[self._rows])

    def continue_from(self, previous: Centers) -> None:
        """Concepts keep their centres; after quantised centres they start anew."""
        if isinstance(previous, ConceptCenters):
            self.load_state_dict(previous.state_dict())

    @torch.no_grad()
    def _meet(self, images: Tensor, captions: Tensor, ids: Tensor) -> None:
        """Set the centres of concepts not seen before to the mean of their embeddings in this batch."""
        if self.spec.center_start == "first_seen":
            same = ids[:, None] == ids[None, :]
            first = same.int().argmax(dim=1)
            sums = torch.zeros_like(images).index_add_(0, first, images + captions)
            means = (sums / (2 * same.sum(dim=1, keepdim=True)))[first]
            means = unit_length(means) if self.spec.on_sphere else means
            self.table[ids] = torch.where(self.seen[ids][:, None], self.table[ids], means)
        self.seen.index_fill_(0, ids, True)


class QuantisedCenters(Centers):
    """Few centres with soft assignments by one layer shared by both branches (Eq. 7).

    steps: training steps done. repelled: (), push: (N_q, D), push_weight: (N_q, 1): value of the repulsion and the
    movement it causes, reused in every training step until they are recomputed. The network gets no gradient from it.
    """

    steps: Tensor
    repelled: Tensor
    push: Tensor
    push_weight: Tensor

    def __init__(self, spec: SemanticCenterSpec, context: LossContext) -> None:
        if spec.quantised_centers > context.concepts:
            raise ConfigError(
                "VSE-L017", "loss.quantised_centers: got {centers} centres for {images} training images, need at most "
                "one per image; set it to {images} or less", centers=spec.quantised_centers, images=context.concepts,
            )
        super().__init__(spec, _normal(spec.quantised_centers, context.embedding_size))
        self.assignment = nn.Linear(context.embedding_size, spec.quantised_centers)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("repelled", torch.zeros(()))
        self.register_buffer("push", torch.zeros_like(self.table))
        self.register_buffer("push_weight", torch.zeros(len(self.table), 1))

    def forward(self, images: Tensor, captions: Tensor, ids: Tensor) -> CenterTerm:
        spec = self.spec
        items = torch.cat([images, captions])
        centers = self.table.detach()
        weights = self.assignment(items).softmax(dim=1)
        hinges = soft_hinges(items, centers, weights, delta=spec.delta)
        attraction = hinges.values.sum() / images.shape[0]
        if self._is_learning:
            self._repel(centers)
            self._gradient = table_gradient(self._movement(items, centers, hinges.pulling), spec.center_update)
        repelled = self.repelled.clone() if self._is_learning else repulsion(centers, delta=spec.delta)
        parts = {
            "center": attraction.detach(), "repulsion": repelled,
            "outside_share": hinges.pulling.sum() / items.shape[0],
            "assignment_entropy": mean_assignment_entropy(weights.detach()),
        }
        return CenterTerm(attraction + spec.repulsion * repelled, parts)

    @torch.no_grad()
    def after_step(self) -> None:
        self.set_counter("steps", self.counter("steps") + 1)
        if self.spec.on_sphere:
            self.table.copy_(unit_length(self.table))

    def continue_from(self, previous: Centers) -> None:
        """Quantised centres and their assignment continue; after concepts, the centres are their k-means."""
        if isinstance(previous, ConceptCenters):
            self._quantise(previous)
        elif previous.table.shape != self.table.shape:
            raise ConfigError(
                "VSE-L018", "loss.quantised_centers: got {centers} after a phase with {before}, need the same number "
                "in every quantised phase", centers=len(self.table), before=len(previous.table),
            )
        else:
            self.load_state_dict(previous.state_dict())

    @torch.no_grad()
    def _quantise(self, previous: ConceptCenters) -> None:
        if self.spec.quantised_start == "random":
            return
        seen = previous.table[previous.seen]
        if len(seen) < len(self.table):
            raise ConfigError(
                "VSE-L019", "loss.quantised_centers: got {centers} centres, but the phase before met only {met} "
                "training images; train it for a whole epoch, or set quantised_start to random",
                centers=len(self.table), met=len(seen),
            )
        found = cluster_centers(seen, len(self.table), seed=self.spec.seed)
        self.table.copy_(unit_length(found) if self.spec.on_sphere else found)

    def _repel(self, centers: Tensor) -> None:
        """Recompute the repulsion in every `repulsion_every`-th training step."""
        if self.counter("steps") % self.spec.repulsion_every == 0:
            repelled, movement = repulsion_movement(centers, delta=self.spec.delta)
            self.repelled.copy_(repelled)
            self.push.copy_(movement.half_gradient)
            self.push_weight.copy_(movement.weight)

    def _movement(self, items: Tensor, centers: Tensor, pulling: Tensor) -> Movement:
        """Of the whole of Eq. 7."""
        pull = soft_movement(items, centers, pulling)
        factor = self.spec.repulsion
        return Movement(pull.half_gradient + factor * self.push, pull.weight + factor * self.push_weight)


def cluster_centers(points: Tensor, count: int, *, seed: int) -> Tensor:
    """(count, D) k-means of points (n, D), n >= count, on the CPU; a cluster that runs empty is seeded anew.

    The same points, seed and number of threads give the same centres. Returned on the device of the points.
    """
    from sklearn.cluster import KMeans  # a second to import, and only where centres become fewer

    found = KMeans(n_clusters=count, n_init=1, random_state=seed).fit(points.detach().cpu().numpy())
    return torch.tensor(found.cluster_centers_, dtype=points.dtype, device=points.device)


def _normal(count: int, size: int) -> Tensor:
    return torch.randn(count, size) / math.sqrt(size)


class Movement(NamedTuple):
    """The movement of the centres by L_C, summed over the batch; without gradient.

    half_gradient: (k, D), half the gradient, so that one item pulls with c - x. weight: (k, 1), total weight of the
    pulling and pushing elements: the items (quantised: their assignments) outside delta, and the centres that are too
    near.
    """

    half_gradient: Tensor
    weight: Tensor


class SoftHinges(NamedTuple):
    """values: (n, k) w_j [|x - c_j|^2 - delta]+. pulling: (n, k) w_j where the item is outside delta, else 0; without
    gradient."""

    values: Tensor
    pulling: Tensor


def concept_hinges(items: Tensor, own_centers: Tensor, *, delta: float) -> Tensor:
    """(n,) [|x - c|^2 - delta]+ of each item and the centre of its concept. Both (n, D); delta: >= 0."""
    return ((items - own_centers).square().sum(dim=1) - delta).relu()


def soft_hinges(items: Tensor, centers: Tensor, assignment: Tensor, *, delta: float) -> SoftHinges:
    """The first two sums of Eq. 7, before they are summed. assignment: (n, k), rows add up to 1. delta: >= 0."""
    excess = (clamped_squared_distances(items, centers) - delta).relu()
    return SoftHinges(assignment * excess, assignment.detach() * (excess.detach() > 0))


def lacking_distances(centers: Tensor, *, delta: float) -> Tensor:
    """(k, k) [2 delta - |c_k - c_l|^2]+ of every two different centres, 0 on the diagonal."""
    return (2 * delta - clamped_squared_distances(centers, centers)).fill_diagonal_(0.0).relu()


def repulsion(centers: Tensor, *, delta: float) -> Tensor:
    """Sum of `lacking_distances` over the unordered pairs, before its weight a. Scalar."""
    return lacking_distances(centers, delta=delta).sum() / 2


def mean_assignment_entropy(assignment: Tensor) -> Tensor:
    """Entropy in nats of the mean over the items of assignment (n, k): ln k if centres are used alike, 0 if one is."""
    entropies: Tensor = torch.special.entr(assignment.mean(dim=0))
    return entropies.sum()


@torch.no_grad()
def concept_movement(images: Tensor, captions: Tensor, own_centers: Tensor, ids: Tensor, *, delta: float) -> Movement:
    """Of Eq. 6, per pair: (B, D) and (B, 1). A concept with several pairs moves by the sum of their rows.

    weight: the items of the whole concept outside delta, the same in each of its rows. ids: (B,).
    """
    image_part, caption_part = own_centers - images, own_centers - captions
    image_outside = _outside(image_part, delta)
    caption_outside = _outside(caption_part, delta)
    same = (ids[:, None] == ids[None, :]).to(image_outside.dtype)
    return Movement(
        image_part * image_outside + caption_part * caption_outside, same @ (image_outside + caption_outside)
    )


@torch.no_grad()
def soft_movement(items: Tensor, centers: Tensor, pulling: Tensor) -> Movement:
    """Of the first two sums of Eq. 7. pulling: (n, k), see `SoftHinges`."""
    weight = pulling.sum(dim=0)[:, None]
    return Movement(weight * centers - pulling.T @ items, weight)


@torch.no_grad()
def repulsion_movement(centers: Tensor, *, delta: float) -> tuple[Tensor, Movement]:
    """`repulsion` and the movement it causes, from the same distances."""
    lacking = lacking_distances(centers, delta=delta)
    near = lacking > 0
    weight = near.sum(dim=1, keepdim=True).to(centers.dtype)
    half_gradient = torch.zeros_like(centers)
    crowded: Tensor | slice = slice(None)
    if is_on_cpu(centers):  # mostly few, and the product costs as much as the distances; a GPU would wait
        crowded = weight[:, 0].nonzero()[:, 0]
    neighbours = near[crowded][:, crowded].to(centers.dtype) @ centers[crowded]
    half_gradient[crowded] = neighbours - weight[crowded] * centers[crowded]
    return lacking.sum() / 2, Movement(half_gradient, weight)


def table_gradient(movement: Movement, update: CenterUpdate) -> Tensor:
    """(k, D) the gradient for plain SGD.

    `count_normalised`: sum (c - x) / (1 + weight), the original centre loss: a step at a rate up to 1 never passes the
    items that pull. `sgd`: the gradient of L_C as printed, a sum over the batch, which passes them at a rate of 0.5.
    """
    half, weight = movement
    return half / (1 + weight) if update == "count_normalised" else 2 * half


def _outside(differences: Tensor, delta: float) -> Tensor:
    return (differences.square().sum(dim=1, keepdim=True) > delta).to(differences.dtype)
