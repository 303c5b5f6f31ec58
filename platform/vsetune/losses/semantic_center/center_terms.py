"""The terms of the semantic centre loss and how centres move (Malali and Keller, Eq. 6 and 7).

    concepts:   L_C = sum_i [|x_i - c_n(i)|^2 - delta]+ + the same for y_i                             (Eq. 6)
    quantised:  L_C = sum_i sum_j w_j(x_i) [|x_i - c_j|^2 - delta]+ + the same for y_i
                    + a sum_{k < l} [2 delta - |c_k - c_l|^2]+                                         (Eq. 7)

n: items (images or captions), k: centres, D: size of the joint space. Nothing here is reduced over the batch, and
everything is differentiable in everything but the functions that return a `Movement`.
The paper prints both indices of the last sum alike; read as unordered pairs of different centres.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from vsetune.losses.parts.loss_devices import is_on_cpu
from vsetune.losses.parts.products import clamped_squared_distances

CenterUpdate = Literal["count_normalised", "sgd"]


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
