"""LSEH, the maximum of hinges with a semantic margin (Gong and Cosma 2022, Eq. 6-8).

    Q_ij = cosine(V_i, V_j),  M_ij = alpha + lambda Q_ij
    LSEH = sum_i max_{j != i} [M_ij + S_ij - S_ii]+ + sum_j max_{i != j} [M_ij + S_ij - S_jj]+

Q is a constant: it decides which negative is the hardest and which hinges are active, and scales no gradient.
The second maximum runs over images; the paper's Eq. 8 prints the caption set there.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from vsetune.losses.lmh.loss import mined_output
from vsetune.losses.loss_base import (
    Loss,
    LossInputs,
    LossOutput,
    Memory,
    at_least_float32,
    require_pairs,
    require_semantics,
)
from vsetune.losses.loss_building import register
from vsetune.losses.lseh.spec import LsehSpec
from vsetune.losses.lsh.loss import sum_of_hinges_output
from vsetune.losses.parts.pairing import (
    candidates,
    hardest_hinges,
    pair_negatives,
    pair_similarity,
    same_image,
)
from vsetune.losses.parts.products import dot_products
from vsetune.losses.parts.spec_fields import SameImage


@torch.no_grad()
def semantic_cosine(vectors: Tensor, others: Tensor | None = None) -> Tensor:
    """(B, P) cosine of the rows of vectors (B, k) and others (P, k); without others of vectors with themselves.

    0 with a zero row (a caption without known words).
    """
    unit = _unit_rows(vectors)
    return dot_products(unit, unit if others is None else _unit_rows(others))


@torch.no_grad()
def semantic_row_maximum(vectors: Tensor) -> Tensor:
    """(B, B) inner products of the rows, each row divided by its largest entry (by 1 where that is 0).

    The similarity of the authors' released code: not symmetric, and it depends on who else is in the batch.
    """
    products = dot_products(vectors, vectors)
    largest = products.max(dim=1, keepdim=True).values
    return products / largest.masked_fill(largest == 0, 1.0)


def lifted_similarity(similarity: Tensor, semantic_similarity: Tensor, *, semantic_temperature: float) -> Tensor:
    """S + lambda Q, the score negatives are mined by. semantic_temperature: lambda >= 0. Lambda 0 returns S exactly."""
    return similarity.add(semantic_similarity, alpha=semantic_temperature)


def without_margin(lifted: Tensor, similarity: Tensor, pairs: Tensor, *, margin: float) -> Tensor:
    """Scores whose hinge is [S_ij - positive]+ at `pairs` (bool), that is without margin, and as before elsewhere."""
    return torch.where(pairs, similarity - margin, lifted)


def lifted_memory(memory: Memory, vectors: Tensor, *, semantic_temperature: float) -> Memory:
    """The memory with lambda Q added to both similarities. vectors: (B, k) of this batch, for the cosine to the
    memory's."""
    semantic = semantic_cosine(vectors, require_semantics(memory, "lseh", vectors.dtype).to(vectors.dtype))
    return replace(
        memory,
        caption_similarity=lifted_similarity(
            at_least_float32(memory.caption_similarity), semantic, semantic_temperature=semantic_temperature
        ),
        image_similarity=lifted_similarity(
            at_least_float32(memory.image_similarity), semantic.T, semantic_temperature=semantic_temperature
        ),
    )


def _unit_rows(vectors: Tensor) -> Tensor:
    """Rows of length 1, or close to 0 where a row is so short that its squares underflow: rounding noise of a
    decomposition that knows none of the caption's words."""
    return functional.normalize(vectors, dim=1, eps=torch.finfo(vectors.dtype).tiny ** 0.5)


@register(LsehSpec)
class SemanticMaxOfHinges(Loss):
    """LSEH, optionally after epochs of LSH with margin alpha.

    Variants: `decided` (cosine; captions of the same image ignored), `diagonal` (cosine; they are negatives like any
    other, the paper's letter), `released` (row-maximum similarity; they keep a hinge without margin).
    """

    spec: LsehSpec

    def __init__(self, spec: LsehSpec) -> None:
        super().__init__(spec)
        self.same_image_rule: SameImage = "decided" if spec.variant == "decided" else "diagonal"

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError unless the batch consists of pairs with semantic vectors."""
        spec = self.spec
        require_pairs(inputs, spec.name)
        if self.is_warming_up:
            return sum_of_hinges_output(inputs, margin=spec.margin, same_image_rule=self.same_image_rule)
        similarity = at_least_float32(inputs.similarity)
        vectors = require_semantics(inputs, "lseh", similarity.dtype)
        scores, memory = self._scores(inputs, similarity, vectors), inputs.memory
        if memory is not None:
            memory = lifted_memory(memory, vectors, semantic_temperature=spec.semantic_temperature)
        negatives = pair_negatives(inputs, self.same_image_rule)
        among = candidates(inputs, scores, negatives, memory, self.same_image_rule)
        terms = hardest_hinges(among, pair_similarity(inputs, similarity), margin=spec.margin)
        return mined_output(inputs, terms.total(), terms.active(), scores=scores, negatives=negatives)

    def _scores(self, inputs: LossInputs, similarity: Tensor, vectors: Tensor) -> Tensor:
        temperature = self.spec.semantic_temperature
        if self.spec.variant != "released":
            return lifted_similarity(similarity, semantic_cosine(vectors), semantic_temperature=temperature)
        lifted = lifted_similarity(similarity, semantic_row_maximum(vectors), semantic_temperature=temperature)
        return without_margin(lifted, similarity, same_image(inputs), margin=self.spec.margin)

