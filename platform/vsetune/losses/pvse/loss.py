"""PVSE: several embeddings per item, matched by their most similar pair (Song and Soleymani 2019).

    S_ij = max over the K x K pairs of dot products
    L = mean hinge on S + w_div (diversity of images + diversity of captions) + w_mmd MMD

The hinge is a mean, unlike LSH and LMH. Diversity acts on the residuals of the attention, not on the embeddings. The
paper names a Gaussian kernel for the discrepancy; the released code has the distance, not its square, in the exponent.
"""

from __future__ import annotations

from typing import Literal, TypeGuard

import torch
from torch import Tensor

from vsetune.losses.loss_base import Loss, LossInputs, LossOutput, Selection, at_least_float32, require_pairs
from vsetune.losses.loss_building import register
from vsetune.losses.parts.pairing import (
    QueryTerms,
    candidates,
    hardest_hinges,
    mined_selection,
    pair_negatives,
    summed_hinges,
)
from vsetune.losses.parts.products import dot_products, squared_distances
from vsetune.losses.pvse.spec import PvseSpec
from vsetune.metrics.vectors import unit_length

_KERNEL_RATE = 0.5
_SMALLEST_SQUARE = 1e-24  # keeps the gradient of the root finite at distance 0


def mean_of_max_hinges(terms: QueryTerms) -> Tensor:
    """Mean over the B queries of each direction, both added. A query without negatives counts with 0. Scalar."""
    return terms.images.mean() + terms.captions.mean()


def mean_of_all_hinges(terms: QueryTerms, *, entries: int) -> Tensor:
    """Mean over all entries of a direction, B^2 or B (B + P) with a memory, both directions added. Scalar.

    The diagonal and ignored pairs count with 0, as released.
    """
    return terms.total() / entries


def diversity(residuals: Tensor) -> Tensor:
    """Mean over the items of |R R^T - I|_F / K^2, R the K residuals of an item at unit length. Scalar.

    residuals: (n, K, D). 0 for orthonormal residuals, where the gradient is 0 as well.
    """
    count = residuals.shape[1]
    unit = unit_length(residuals)
    excess = dot_products(unit, unit) - torch.eye(count, dtype=unit.dtype, device=unit.device)
    lengths: Tensor = torch.linalg.vector_norm(excess, dim=(1, 2))
    return lengths.mean() / (count * count)


def discrepancy(x: Tensor, y: Tensor, *, kernel: Literal["distance", "squared"]) -> Tensor:
    """Maximum mean discrepancy mean k(x, x') - 2 mean k(x, y) + mean k(y, y') of the rows of x and y. Scalar.

    x: (n, D). y: (m, D). kernel: k = exp(-|u - v| / 2), or exp(-|u - v|^2 / 2) if `squared`. Biased: an element is also
    paired with itself. 0 for equal sets.
    """
    within = _kernel(x, x, kernel).mean() + _kernel(y, y, kernel).mean()
    return within - 2 * _kernel(x, y, kernel).mean()


def _kernel(x: Tensor, y: Tensor, kernel: Literal["distance", "squared"]) -> Tensor:
    squares = squared_distances(x, y)
    exponents = squares if kernel == "squared" else squares.clamp(min=_SMALLEST_SQUARE).sqrt()
    return (-_KERNEL_RATE * exponents).exp()


@register(PvseSpec)
class MultipleInstanceHinge(Loss):
    """PVSE's loss. The network's similarity already is the multiple-instance one.

    With one embedding per item it is the hinge alone. Warm-up epochs use the hinges of all negatives.
    """

    spec: PvseSpec

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError unless the batch consists of pairs."""
        spec = self.spec
        require_pairs(inputs, spec.name)
        ranking, selection = self._ranking(inputs)
        value, parts = ranking, {"ranking": ranking.detach()}
        images, captions = inputs.images, inputs.captions
        if images is None or captions is None:
            return LossOutput(value, parts, selection)
        if spec.diversity_weight > 0 and _several(images.residuals) and _several(captions.residuals):
            spread = diversity(images.residuals) + diversity(captions.residuals)
            value, parts["diversity"] = value + spec.diversity_weight * spread, spread.detach()
        if spec.discrepancy_weight > 0 and _several(images.vectors) and _several(captions.vectors):
            gap = discrepancy(images.vectors.flatten(0, 1), captions.vectors.flatten(0, 1), kernel=spec.kernel)
            value, parts["discrepancy"] = value + spec.discrepancy_weight * gap, gap.detach()
        return LossOutput(value, parts, selection)

    def _ranking(self, inputs: LossInputs) -> tuple[Tensor, Selection | None]:
        spec = self.spec
        similarity = at_least_float32(inputs.similarity)
        negatives = pair_negatives(inputs, spec.variant)
        among = candidates(inputs, similarity, negatives, inputs.memory, spec.variant)
        if spec.negatives == "sum" or self.is_warming_up:
            terms = summed_hinges(among, similarity.diagonal(), margin=spec.margin)
            return mean_of_all_hinges(terms, entries=among.images.numel()), None
        terms = hardest_hinges(among, similarity.diagonal(), margin=spec.margin)
        return mean_of_max_hinges(terms), mined_selection(inputs, similarity, negatives, terms.active())


def _several(embeddings: Tensor | None) -> TypeGuard[Tensor]:
    return embeddings is not None and embeddings.dim() == 3 and embeddings.shape[1] > 1
