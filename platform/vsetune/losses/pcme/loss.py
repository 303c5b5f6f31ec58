"""PCME: soft contrastive loss of sampled embeddings (Chun et al. 2021).

    dist = sqrt(|x - y|^2 + 1e-6),  P(match | x, y) = sigmoid(2 (b - a dist)),  a and b learned scalars
    nll_ij = -ln mean over the J^2 pairs of samples of P (a pair) or of 1 - P (a mismatch)
    L = 2 sum_ij nll_ij + w_unif uniformity + w_kl (KL of images + KL of captions)

The factor 2 stands for the two directions, which are equal. s is the logarithm of a standard deviation when embeddings
are sampled; in the KL the released code reads it as that of a variance, and uses the mean of the samples instead of the
predicted one. The default reads s consistently; `released` reproduces the code.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
from vsetune.losses.pcme.spec import PcmeSpec

_ADDED_SQUARE = 1e-6
_UNIFORMITY_RATE = 2.0
_RELEASED_SAMPLES = 128


def draw_samples(items: Items, count: int) -> Tensor:
    """(n, J, D) samples mu + e^s noise, from torch's generator of the device, not normalised; J = 1 and mu for
    points."""
    means = at_least_float32(items.vectors)
    if items.log_scales is None:
        return means[:, None]
    noise = torch.randn(means.shape[0], count, means.shape[1], dtype=means.dtype, device=means.device)
    return means[:, None] + at_least_float32(items.log_scales).exp()[:, None] * noise


def match_nll(images: Tensor, captions: Tensor, *, scale: Tensor, shift: Tensor) -> Tensor:
    """(B, B) negative log-likelihood: that pair i matches on the diagonal, that i and j do not match elsewhere.

    images: (B, J, D) samples. captions: (B, K, D). scale, shift: a and b, scalars. One product of (B J) x (B K);
    nothing larger is stored.
    """
    (pairs, drawn, _), other_drawn = images.shape, captions.shape[1]
    squares = squared_distances(images.flatten(0, 1), captions.flatten(0, 1))
    logits = 2 * (shift - scale * (squares + _ADDED_SQUARE).sqrt()).view(pairs, drawn, pairs, other_drawn)
    combinations = math.log(drawn * other_drawn)
    mismatch = combinations - F.logsigmoid(-logits).logsumexp(dim=(1, 3))
    match = combinations - F.logsigmoid(logits.diagonal(dim1=0, dim2=2)).logsumexp(dim=(0, 1))
    return torch.where(diagonal(mismatch), match[:, None], mismatch)


def uniformity(samples: Tensor) -> Tensor:
    """ln of the mean of exp(-2 |u - v|^2) over all pairs of two rows u, v of samples (n, D), n >= 2. Scalar, <= 0."""
    squares = squared_distances(samples, samples)
    exponents = (-_UNIFORMITY_RATE * squares).masked_fill(diagonal(squares), float("-inf"))
    count = samples.shape[0]
    return exponents.logsumexp(dim=(0, 1)) - math.log(count * (count - 1))


def kl_to_standard_normal(means: Tensor, log_variances: Tensor) -> Tensor:
    """Sum over items and dimensions of KL(N(mean, variance) | N(0, 1)) = -1/2 (1 + v - mean^2 - e^v). Scalar >= 0."""
    return (means.square() + log_variances.expm1() - log_variances).sum() / 2


@register(PcmeSpec)
class SoftContrastive(Loss):
    """PCME's loss; a and b (`scale`, `shift`) learn with the network's optimizer. As released, a is not constrained to
    be positive.

    An embedding network gives points: one sample per item and no KL. Variants: `decided` (other captions of the same
    image ignored, consistent KL, uniformity over all samples) and `released` (they are mismatches, the code's KL,
    uniformity over 128 samples chosen with replacement if there are more).
    """

    spec: PcmeSpec
    scale: Tensor
    shift: Tensor

    def __init__(self, spec: PcmeSpec) -> None:
        super().__init__(spec)
        self.scale = nn.Parameter(torch.tensor(spec.scale))
        self.shift = nn.Parameter(torch.tensor(spec.shift))

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError unless the batch consists of pairs with one embedding or Gaussian per item."""
        spec = self.spec
        require_pairs(inputs, spec.name)
        both = require_items(inputs, spec.name)
        samples = [draw_samples(items, spec.samples) for items in both]
        negatives = pair_negatives(inputs, "diagonal" if spec.variant == "released" else "decided")
        nll = match_nll(*samples, scale=self.scale, shift=self.shift)
        value = 2 * nll.masked_fill(~(negatives | diagonal(nll)), 0.0).sum()
        parts = {"contrastive": value.detach()}
        if spec.uniformity_weight > 0:
            spread = self._uniformity(samples)
            value, parts["uniformity"] = value + spec.uniformity_weight * spread, spread.detach()
        if spec.kl_weight > 0:
            divergence = self._divergence(both[0], samples[0]) + self._divergence(both[1], samples[1])
            value, parts["divergence"] = value + spec.kl_weight * divergence, divergence.detach()
        parts |= {"scale": self.scale.detach().clone(), "shift": self.shift.detach().clone()}
        selection = Selection(at_least_float32(inputs.similarity).detach(), negatives, None, None, is_proxy=True)
        return LossOutput(value=value, parts=parts, selection=selection)

    def shared_parameters(self) -> dict[str, Tensor]:
        """a and b, of the match probability."""
        return {"match_scale": self.scale.detach(), "match_shift": self.shift.detach()}

    def _uniformity(self, samples: list[Tensor]) -> Tensor:
        everything = torch.cat([drawn.flatten(0, 1) for drawn in samples])
        if self.spec.variant == "released" and everything.shape[0] > _RELEASED_SAMPLES:
            places = torch.randint(everything.shape[0], (_RELEASED_SAMPLES,), device=everything.device)
            everything = everything[places]
        return uniformity(everything)

    def _divergence(self, items: Items, samples: Tensor) -> Tensor:
        if items.log_scales is None:  # a point has none
            return samples.new_zeros(())
        log_scales = at_least_float32(items.log_scales)
        if self.spec.variant == "released":
            return kl_to_standard_normal(samples.mean(dim=1), log_scales)
        return kl_to_standard_normal(at_least_float32(items.vectors), 2 * log_scales)
