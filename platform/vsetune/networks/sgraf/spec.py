"""Hyperparameters of SGRAF's two networks."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.component_specs import NetworkSpec, PairCost
from vsetune.config.spec.base import Kind, Range, Score, tunable
from vsetune.networks.parts.network_fields import Norm, norm_with_added_length


class SgrafSpec(NetworkSpec):
    """What SAF and SGR share: similarity vectors of every word with its image, and of whole image and caption."""

    source: ClassVar[str] = "Diao et al., AAAI 2021"
    later_keys: ClassVar[tuple[str, ...]] = ("norm",)

    def pair_cost(self, *, regions: int, words: int) -> PairCost:
        """Attention and the maps to similarity vectors; a vector per word and one of the whole."""
        size, mapped = self.embedding_size, self.similarity_size
        flops = 4 * regions * words * size + 2 * (words + 1) * size * mapped
        return PairCost(flops=flops, numbers=4 * regions * words + 6 * (words + 1) * mapped)

    @property
    def kind(self) -> Kind:
        return "score"

    similarity_size: int = Field(256, ge=1, le=65_536, description="size of a similarity vector")
    attention_scale: float = tunable(
        9.0, Range(low=2.0, high=20.0, log=True), gt=0,
        description="lambda, multiplies attention of words to regions before its softmax", paper="SGRAF: 9",
    )
    dropout: float = tunable(
        0.4, Range(low=0.0, high=0.6), ge=0, lt=1,
        description="of word embeddings and inside the self-attention of both towers", paper="SGRAF's code: 0.4",
    )
    map_bias: bool = Field(
        True, description="bias in the maps to similarity vectors, as in the released code; the paper has none",
    )
    norm: Norm = norm_with_added_length()

    @property
    def score(self) -> Score:
        return "probability"


class SgrafSafSpec(SgrafSpec):
    """SGRAF-SAF (Diao et al. 2021): similarity attention filtration, a gated mean of the similarity vectors."""

    default_parameters: ClassVar[int] = 17_973_006

    name: Literal["sgraf_saf"] = "sgraf_saf"
    gate_statistics: Literal["per_caption", "pooled"] = Field(
        "per_caption",
        description="batch normalisation of the gates in training: over each caption with all images, as the "
        "released loop does, or over all pairs at once",
    )
    normalize_filtered: bool = Field(
        True, description="unit length of the gated mean, as in the released code; the paper has none",
    )


class SgrafSgrSpec(SgrafSpec):
    """SGRAF-SGR (Diao et al. 2021): similarity graph reasoning over the similarity vectors."""

    default_parameters: ClassVar[int] = 18_564_875

    name: Literal["sgraf_sgr"] = "sgraf_sgr"
    steps: int = Field(3, ge=1, le=1000, description="steps of reasoning, each with weights of its own")

    def pair_cost(self, *, regions: int, words: int) -> PairCost:
        """SGRAF's similarity vectors, and three maps and two products of nodes per step."""
        shared, nodes, size = super().pair_cost(regions=regions, words=words), words + 1, self.similarity_size
        return PairCost(
            flops=shared.flops + self.steps * (6 * nodes * size**2 + 4 * nodes**2 * size), numbers=shared.numbers,
        )
