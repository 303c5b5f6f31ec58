"""PCME (Chun et al. 2021): every item is a Gaussian with mean mu and standard deviations e^s in the joint space.

    mu = PVSE's embedding with one head, without dropout
    image    s = W a + b + W' mean_r x_r + b',           a: regions attended to
    caption  s = W a + b + end states of a second Bi-GRU,  a: word vectors attended to
    samples  z_k = mu + e^s noise_k,  k = 1..J;  they are not normalised

    matmul             S_ij = sum over k, l of z_ik z'_jl = (sum_k z_ik) (sum_l z'_jl)
    match_probability  S_ij = log-odds of the mean over k, l of logistic(2 (b - a sqrt(|z_ik - z'_jl|^2 + 1e-6)))
    mean               S_ij = mu_i mu'_j

The released code ranks by the probability itself, which float32 rounds to 1 for all good matches; its log-odds have the
same order and no such ties. It also samples new noise for every item at test. Here the noise of evaluation is sampled
once from a seed, one set for all images and one for all captions, so that a score does not depend on the batch.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network, at_least_float32, region_mask
from vsetune.networks.network_building import register
from vsetune.networks.parts.layers import xavier_linear
from vsetune.networks.parts.polysemous import ItemAttention, PolysemousHead, end_states, mean_of_items, unpacked
from vsetune.networks.parts.recurrence import embed_words, word_embedding
from vsetune.networks.pcme.spec import PcmeNetworkSpec

_ADDED_SQUARE = 1e-6
_NUMBERS_PER_BLOCK = 2**23  # pairs of samples in memory at once, 32 MiB of float32; a matter of memory only
_CAPTIONS_PER_BLOCK = 1024  # whose samples are in memory at once, 28 MiB of float32 at J = 7 and D = 1024


def samples(means: Tensor, log_scales: Tensor, noise: Tensor) -> Tensor:
    """(n, J, D): the samples of each item. means, log_scales: (n, D). noise: (J, D) for all, or (n, J, D)."""
    return means[:, None] + log_scales.exp()[:, None] * noise


def sums_of_samples(means: Tensor, log_scales: Tensor, noise: Tensor) -> Tensor:
    """(n, D): sum of the J samples of each item, without forming them. Shapes as above."""
    return noise.shape[-2] * means + log_scales.exp() * noise.sum(dim=-2)


def match_log_odds(images: Tensor, captions: Tensor, *, scale: Tensor, shift: Tensor) -> Tensor:
    """(n, m): ln(p / (1 - p)), p the mean match probability over the pairs of samples.

    images: (n, J, D). captions: (m, J, D). scale, shift: a and b, scalars. Goes through blocks of images.
    """
    rows = max(1, _NUMBERS_PER_BLOCK // (images.shape[1] * captions.shape[0] * captions.shape[1]))
    blocks = [images[start : start + rows] for start in range(0, len(images), rows)]
    return torch.cat([_block_of_log_odds(block, captions, scale, shift) for block in blocks])


def _block_of_log_odds(images: Tensor, captions: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    (n, drawn, _), (m, other, _) = images.shape, captions.shape
    x, y = images.flatten(0, 1), captions.flatten(0, 1)
    squares = x.square().sum(dim=1)[:, None] + y.square().sum(dim=1) - 2 * x @ y.T
    distances = (squares.clamp_min(0.0) + _ADDED_SQUARE).sqrt()
    logits = 2 * (shift - scale * distances).view(n, drawn, m, other)
    return logsigmoid(logits).logsumexp(dim=(1, 3)) - logsigmoid(-logits).logsumexp(dim=(1, 3))


@register(PcmeNetworkSpec)
class Pcme(Network):
    """Encoded items have the mean, of unit length, as `vectors` and s as `log_scales`.

    match_scale, match_shift: buffers, a and b. PCME's loss learns them; other losses leave them alone.
    """

    match_scale: Tensor
    match_shift: Tensor
    image_noise: Tensor
    caption_noise: Tensor

    def __init__(self, spec: PcmeNetworkSpec, *, width: int, vocabulary_size: int) -> None:
        super().__init__(spec)
        size = spec.embedding_size
        self._spec = spec
        self.image_map = nn.Linear(width, size)
        self.image_head = PolysemousHead(width, size, heads=1)
        self.image_spread = Spread(width, size)
        self.image_spread_map = nn.Linear(width, size)
        self.words = word_embedding(vocabulary_size, spec.word_size)
        self.gru = nn.GRU(spec.word_size, size // 2, batch_first=True, bidirectional=True)
        self.caption_head = PolysemousHead(spec.word_size, size, heads=1)
        self.caption_spread = Spread(spec.word_size, size)
        self.spread_gru = nn.GRU(spec.word_size, size // 2, batch_first=True, bidirectional=True)
        self.register_buffer("match_scale", torch.tensor(spec.match_scale))
        self.register_buffer("match_shift", torch.tensor(spec.match_shift))
        noise = torch.randn(2, spec.samples, size, generator=torch.Generator().manual_seed(spec.sample_seed))
        self.register_buffer("image_noise", noise[0], persistent=False)
        self.register_buffer("caption_noise", noise[1], persistent=False)

    def encode_images(self, images: ImageInputs) -> Encoded:
        """Gaussians that depend on the set of real regions alone, not on their order."""
        mask = region_mask(images.counts, images.features.shape[1])
        pooled = mean_of_items(images.features, mask)
        means, _ = self.image_head(self.image_map(pooled), images.features, mask)
        spread = self.image_spread(self.image_spread_map(pooled), images.features, mask)
        return Encoded(means.squeeze(1), log_scales=spread)

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        """Attention reads the word vectors themselves, not the states of the GRUs."""
        words = embed_words(self.words, captions.tokens, captions.lengths_on_host)
        items, mask = unpacked(words)
        means, _ = self.caption_head(end_states(self.gru, words, self._spec.end_state), items, mask)
        spread = self.caption_spread(end_states(self.spread_gru, words, self._spec.end_state), items, mask)
        return Encoded(means.squeeze(1), log_scales=spread)

    def similarity(self, images: Encoded, captions: Encoded) -> Tensor:
        """(n, m) scores in the form that `similarity` of the spec names, float32 or wider.

        In training the noise comes from torch's generator of the device, new for every item and call; in evaluation it
        is that of `sample_seed`.
        """
        with torch.autocast(images.vectors.device.type, enabled=False):
            means, other_means = at_least_float32(images.vectors), at_least_float32(captions.vectors)
            if self._spec.similarity == "mean":
                return means @ other_means.T
            scales, other_scales = _log_scales(images), _log_scales(captions)
            if self._spec.similarity == "csd":
                spreads = _variance(means, scales)[:, None] + _variance(other_means, other_scales)
                return 2 * means @ other_means.T - spreads
            noise, other_noise = self._noise(means, self.image_noise), self._noise(other_means, self.caption_noise)
            if self._spec.similarity == "matmul":
                sums = sums_of_samples(means, scales, noise)
                return sums @ sums_of_samples(other_means, other_scales, other_noise).T
            drawn, scores = samples(means, scales, noise), []
            for start in range(0, len(other_means), _CAPTIONS_PER_BLOCK):
                block = slice(start, start + _CAPTIONS_PER_BLOCK)
                own_noise = other_noise[block] if other_noise.dim() == 3 else other_noise
                others = samples(other_means[block], other_scales[block], own_noise)
                scores.append(match_log_odds(drawn, others, scale=self.match_scale, shift=self.match_shift))
            return torch.cat(scores, dim=1)

    @torch.no_grad()
    def take_loss_parameters(self, learned: Mapping[str, Tensor]) -> None:
        """Use a and b learned by PCME's loss in the match probability."""
        if "match_scale" in learned and "match_shift" in learned:
            self.match_scale.copy_(learned["match_scale"])
            self.match_shift.copy_(learned["match_shift"])

    def _noise(self, means: Tensor, of_evaluation: Tensor) -> Tensor:
        if not self.training:
            return of_evaluation
        drawn = (len(means), self._spec.samples, means.shape[1])
        return torch.randn(drawn, dtype=means.dtype, device=means.device)


class Spread(nn.Module):
    """s = W a + b + a vector of the whole item, a what one head attends to; its own attention, no logistic."""

    def __init__(self, width: int, embedding_size: int) -> None:
        super().__init__()
        self.attention = ItemAttention(width, heads=1)
        self.local_map = xavier_linear(width, embedding_size)

    def forward(self, whole: Tensor, items: Tensor, mask: Tensor) -> Tensor:
        """(n, D), float32 or wider. whole: (n, D). items: (n, P, d). mask: (n, P)."""
        attended = self.local_map(self.attention(items, mask).squeeze(1))
        return at_least_float32(attended) + at_least_float32(whole)


def _variance(means: Tensor, log_scales: Tensor) -> Tensor:
    """(n,) |mu|^2 + the sum of the variances of each item."""
    return means.square().sum(dim=1) + (2 * log_scales).exp().sum(dim=1)


def _log_scales(items: Encoded) -> Tensor:
    if items.log_scales is None:
        raise ValueError("items without log_scales were not encoded by this network")
    return at_least_float32(items.log_scales)
