"""Hyperparameters of PVSE."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.component_specs import NetworkSpec, PairCost
from vsetune.config.spec.base import Kind, Range, tunable


class PvseNetworkSpec(NetworkSpec):
    """PVSE (Song and Soleymani 2019): K embeddings per item, global features plus what K attention heads add."""

    source: ClassVar[str] = "Song and Soleymani, CVPR 2019"
    default_parameters: ClassVar[int] = 12_153_780

    def pair_cost(self, *, regions: int, words: int) -> PairCost:
        """K x K dot products."""
        return PairCost(flops=2 * self.embeddings**2 * self.embedding_size, numbers=2 * self.embeddings**2)

    name: Literal["pvse"] = "pvse"
    embedding_size: int = Field(
        1024, ge=2, le=65_536, multiple_of=2,
        description="D, size of the joint space; each direction of the GRU has half of it",
    )
    embeddings: int = Field(2, ge=1, le=16, description="K, embeddings per item; 1 gives one vector and a dot product")
    dropout: float = tunable(
        0.0, Range(low=0.0, high=0.3), ge=0, lt=1,
        description="on word vectors, global features and residuals", paper="PVSE: 0",
    )
    end_state: Literal["final", "legacy"] = Field(
        "final",
        description="`final`: last state of each direction of the caption GRU; `legacy` (released COCO checkpoints): "
        "its output at the last word, where the backward direction has read that word alone",
    )

    @property
    def kind(self) -> Kind:
        """One vector per item with K = 1, else several."""
        return "embedding" if self.embeddings == 1 else "several_embeddings"
