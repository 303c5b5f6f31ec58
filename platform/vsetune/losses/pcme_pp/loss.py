"""PCME++: matching loss of a closed-form probabilistic distance (Chun 2024, Eq. 1 to 4).

    d_ij = |mu_i - mu_j|^2 + sum over dimensions of (var_i + var_j),   P(match) = sigmoid(b - a d),   a and b learned
    L = 2 mean_ij H(m_ij, z_ij) + alpha (mean_ij H(m^v_ij, z_ij) + mean_ij H(m^t_ij, z_ij)) + w_kl KL,   z = b - a d

H is the logistic cross-entropy, m the matches of the batch. m^v adds the pseudo-positives of images to m: captions that
are at least as near to an image as its own caption, up to rounding. m^t adds those of captions. The factor 2 stands for
the two directions, which are equal. KL is a mean over items and dimensions; those of images and captions are added.
Networks here give the logarithm s of a standard deviation, so var = e^(2 s). The augmentation by mixed images (MSDA) is
not part of the loss.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from vsetune.losses.loss_base import (
    Items,
    Loss,
    LossInputs,
    LossOutput,
    Selection,
    at_least_float32,
    require_items,
    require_pairs,
)
from vsetune.losses.loss_building import register
from vsetune.losses.parts.pairing import diagonal, pair_negatives
from vsetune.losses.parts.products import squared_distances
from vsetune.losses.pcme.loss import kl_to_standard_normal
from vsetune.losses.pcme_pp.spec import PcmePpSpec
from vsetune.metrics.vectors import lengths


def closed_form_distances(images: Items, captions: Items) -> Tensor:
    """(n, m) mean squared distance of samples of two Gaussians, |mu - mu'|^2 + sum(var + var'); points have var 0."""
    distances = squared_distances(images.vectors, captions.vectors)
    return distances + _spread(images, distances)[:, None] + _spread(captions, distances)[None, :]


def _spread(items: Items, like: Tensor) -> Tensor:
    """(n,) sum of the variances of each item."""
    if items.log_scales is None:
        return like.new_zeros(len(items.vectors))
    return (2 * at_least_float32(items.log_scales)).exp().sum(dim=1)


@torch.no_grad()
def rounding_of_distances(images: Items, captions: Items) -> Tensor:
    """Scalar, below which two distances of the batch count as equal: 16 times the last bit of their largest terms.

    Equal captions that were encoded in other batches, chunks or processes differ by less.
    """
    terms = [
        (lengths(at_least_float32(each.vectors)).square()[:, 0] + _spread(each, each.vectors)).amax()
        for each in (images, captions)
    ]
    total = terms[0] + terms[1]
    return 16 * torch.finfo(total.dtype).eps * total


def pseudo_positives(logits: Tensor, matches: Tensor, *, rounding: Tensor) -> Tensor:
    """(B, B) bool: the matches, and the entries that score at least as high as the diagonal one of their row. rounding:
    scalar >= 0, how much lower a score may be that counts as equal."""
    return matches | (logits >= logits.diagonal()[:, None] - rounding)


def matching_loss(logits: Tensor, targets: Tensor, counted: Tensor) -> Tensor:
    """Mean logistic cross-entropy over the counted entries. All (B, B), the last two bool."""
    terms = binary_cross_entropy_with_logits(logits, targets.to(logits), reduction="none")
    return terms.masked_fill(~counted, 0.0).sum() / counted.sum()


def mean_divergence(items: Items) -> Tensor:
    """KL to the standard normal distribution, mean over items and dimensions; 0 for points."""
    vectors = at_least_float32(items.vectors)
    if items.log_scales is None:
        return vectors.new_zeros(())
    return kl_to_standard_normal(vectors, 2 * at_least_float32(items.log_scales)) / vectors.numel()


@register(PcmePpSpec)
class PcmePp(Loss):
    """PCME++'s loss. scale, shift: a and b, trained with the network's optimizer. As in the released code, a may become
    negative."""

    spec: PcmePpSpec
    scale: Tensor
    shift: Tensor

    def __init__(self, spec: PcmePpSpec) -> None:
        super().__init__(spec)
        self.scale = nn.Parameter(torch.tensor(spec.scale))
        self.shift = nn.Parameter(torch.tensor(spec.shift))

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError unless the batch consists of pairs with one embedding or Gaussian per item."""
        spec = self.spec
        require_pairs(inputs, spec.name)
        images, captions = require_items(inputs, spec.name)
        logits = self.shift - self.scale * closed_form_distances(images, captions)
        negatives, matches = pair_negatives(inputs, spec.variant), diagonal(logits)
        counted = negatives | matches
        value = 2 * matching_loss(logits, matches, counted)
        parts = {"matching": value.detach()}
        if spec.pseudo_weight > 0:
            rounding = self.scale.detach().abs() * rounding_of_distances(images, captions)
            of_images = pseudo_positives(logits, matches, rounding=rounding)
            of_captions = pseudo_positives(logits.T, matches, rounding=rounding).T
            pseudo = matching_loss(logits, of_images, counted) + matching_loss(logits, of_captions, counted)
            value, parts["pseudo"] = value + spec.pseudo_weight * pseudo, pseudo.detach()
        if spec.kl_weight > 0:
            divergence = mean_divergence(images) + mean_divergence(captions)
            value, parts["divergence"] = value + spec.kl_weight * divergence, divergence.detach()
        parts |= {"scale": self.scale.detach().clone(), "shift": self.shift.detach().clone()}
        selection = Selection(at_least_float32(inputs.similarity).detach(), negatives, None, None, is_proxy=True)
        return LossOutput(value=value, parts=parts, selection=selection)
