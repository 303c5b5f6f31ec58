"""LSEH, the maximum of hinges with a semantic margin (Gong and Cosma 2022, Eq. 6-8).

    Q_ij = cosine(V_i, V_j),  M_ij = alpha + lambda Q_ij
    LSEH = sum_i max_{j != i} [M_ij + S_ij - S_ii]+ + sum_j max_{i != j} [M_ij + S_ij - S_jj]+

Q is a constant: it decides which negative is the hardest and which hinges are active, and scales no gradient.
The second maximum runs over images; the paper's Eq. 8 prints the caption set there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vsetune.config.losses import LsehSpec
from vsetune.errors import ConfigError
from vsetune.losses.base import Loss, LossInputs, LossOutput, at_least_float32, require_pairs
from vsetune.losses.hinges import max_of_hinges
from vsetune.losses.lmh import mined_output
from vsetune.losses.lsh import sum_of_hinges_output
from vsetune.losses.pairing import SameImage, pair_negatives, same_image
from vsetune.losses.registry import register


@torch.no_grad()
def semantic_cosine(vectors: Tensor) -> Tensor:
    """(B, B) cosine of the rows of vectors (B, k); symmetric; 0 with a zero row (a caption without known words)."""
    lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    unit = vectors / lengths.masked_fill(lengths == 0, 1.0)
    return _gram(unit)


@torch.no_grad()
def semantic_row_maximum(vectors: Tensor) -> Tensor:
    """(B, B) inner products of the rows, each row divided by its largest entry (by 1 where that is 0).

    The similarity of the authors' released code: not symmetric, and it depends on who else is in the batch.
    """
    products = _gram(vectors)
    largest = products.max(dim=1, keepdim=True).values
    return products / largest.masked_fill(largest == 0, 1.0)


def lifted_similarity(similarity: Tensor, semantic_similarity: Tensor, *, semantic_temperature: float) -> Tensor:
    """S + lambda Q, the score negatives are mined by. semantic_temperature: lambda >= 0. Lambda 0 returns S exactly."""
    return similarity + semantic_temperature * semantic_similarity


def without_margin(lifted: Tensor, similarity: Tensor, pairs: Tensor, *, margin: float) -> Tensor:
    """Scores whose hinge is [S_ij - positive]+ at `pairs` (bool), that is without margin, and as before elsewhere."""
    return torch.where(pairs, similarity - margin, lifted)


def _gram(rows: Tensor) -> Tensor:
    # autocast would compute this product in bfloat16, whose steps near 1 exceed many semantic differences
    with torch.autocast(device_type=rows.device.type, enabled=False):
        return rows @ rows.T


@register(LsehSpec)
class SemanticMaxOfHinges(Loss):
    """LSEH, optionally after epochs of LSH with margin alpha.

    Variants: `decided` (cosine; captions of the same image ignored), `diagonal` (cosine; they are negatives like any
    other, the paper's letter), `released` (row-maximum similarity; they keep a hinge without margin).
    """

    def __init__(self, spec: LsehSpec) -> None:
        super().__init__(warmup_epochs=spec.warmup_epochs)
        self.spec = spec
        self.same_image_rule: SameImage = "decided" if spec.variant == "decided" else "diagonal"

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError unless the batch consists of pairs with semantic vectors."""
        spec = self.spec
        require_pairs(inputs, spec.name)
        if self.is_warming_up:
            return sum_of_hinges_output(inputs, margin=spec.margin, same_image_rule=self.same_image_rule)
        similarity = at_least_float32(inputs.similarity)
        negatives = pair_negatives(inputs, self.same_image_rule)
        scores = self._scores(inputs, similarity)
        terms = max_of_hinges(scores, similarity.diagonal(), negatives, margin=spec.margin)
        return mined_output(terms, scores, negatives)

    def _scores(self, inputs: LossInputs, similarity: Tensor) -> Tensor:
        spec = self.spec
        if inputs.semantic_vectors is None:
            raise ConfigError(
                f"loss {spec.name}: got a batch without semantic vectors, need one per caption; "
                "read the training split with data.semantics"
            )
        vectors = inputs.semantic_vectors.to(torch.promote_types(similarity.dtype, inputs.semantic_vectors.dtype))
        if spec.variant != "released":
            return lifted_similarity(
                similarity, semantic_cosine(vectors), semantic_temperature=spec.semantic_temperature
            )
        lifted = lifted_similarity(
            similarity, semantic_row_maximum(vectors), semantic_temperature=spec.semantic_temperature
        )
        return without_margin(lifted, similarity, same_image(inputs), margin=spec.margin)
