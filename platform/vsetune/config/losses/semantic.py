"""Losses that read semantic vectors of the captions: LSEH, sentence-based (many-to-many), additive margins."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from vsetune.config.base import Range, tunable
from vsetune.config.losses.base import LossSpec, MemorySpec, semantics_field, warmup_epochs
from vsetune.config.networks import ALL_SCORES, Score
from vsetune.config.semantics import SemanticSource


class LsehSpec(MemorySpec):
    """Semantically enhanced max of hinges (LSEH; Gong and Cosma 2022, Eq. 6-8)."""

    equation: ClassVar[str] = (
        "Q_ij = cos(V_i, V_j);  sum_i max_{j != i} [alpha + lambda Q_ij + S_ij - S_ii]+  +  "
        "sum_j max_{i != j} [alpha + lambda Q_ij + S_ij - S_jj]+"
    )
    source: ClassVar[str] = "Gong and Cosma 2022 (LSEH), Eq. 6-8"

    name: Literal["lseh"] = "lseh"
    margin: float = tunable(
        0.185, Range(low=0.05, high=0.4), ge=0,
        description="alpha, in units of similarity", paper="LSEH Table 2: 0.185",
    )
    semantic_temperature: float = tunable(
        0.025, Range(low=0.005, high=0.1, log=True), ge=0,
        description="lambda, multiplies the similarity of captions", paper="LSEH Table 2: 0.025",
    )
    variant: Literal["decided", "diagonal", "released"] = Field(
        "decided",
        description="`decided` cosine, same-image captions ignored; `diagonal` cosine, they stay negatives (the "
        "paper's letter); `released` row-maximum scores, zero margin for them (the authors' code)",
    )
    semantics: SemanticSource = semantics_field("svd")
    warmup_epochs: int = warmup_epochs()

    @property
    def semantic_source(self) -> SemanticSource | None:
        return self.semantics

    @model_validator(mode="after")
    def _released_has_no_memory(self) -> LsehSpec:
        if self.variant == "released" and self.memory_size:
            raise ValueError(
                f"memory_size {self.memory_size}: variant released scores captions against the largest product of "
                "their batch, which a memory has none of; use variant decided or diagonal"
            )
        return self


class ManyToManySpec(LossSpec):
    """Many-to-many sentence-based semantic loss L_sbs (Zhang et al. 2023, Eq. 6-10)."""

    equation: ClassVar[str] = (
        "per anchor n: sum over similar m (q_nm >= lambda) of ln((s_nm / s_nn) / q_nm)^2  +  sum over the others of "
        "[delta - h_n + s_nm]+,  h_n = min of s_nm over similar m;  s, q in [0, 1]; both directions added"
    )
    source: ClassVar[str] = "Zhang et al. 2023, Eq. 6-10"
    scores: ClassVar[frozenset[Score]] = frozenset({"cosine", "probability"})

    name: Literal["many_to_many"] = "many_to_many"
    threshold: float = tunable(
        0.75, Range(low=0.5, high=1.0), ge=0, le=1,
        description="lambda, similarity of sentences in [0, 1] from which a pair counts as similar",
        paper="Zhang et al.: 0.75",
    )
    margin: float = tunable(
        0.1, Range(low=0.02, high=0.3), ge=0,
        description="delta, in units of similarity rescaled to [0, 1]", paper="Zhang et al.: 0.1",
    )
    log_weight: float = tunable(
        1.0, Range(low=0.1, high=3.0, log=True), ge=0,
        description="weight of the log-ratio terms; 1 as in the paper", paper="our addition",
    )
    lowest: Literal["network", "semantic"] = Field(
        "network",
        description="h_n: minimum of network similarities (Eq. 14) or of sentence similarities (text of Eq. 8)",
    )
    direction: Literal["own_anchor", "as_printed"] = Field(
        "own_anchor",
        description="`as_printed`: Eq. 9-10 to the letter, which repeat the log terms and h_n of image anchors",
    )
    rescale: Literal["both", "network"] = Field(
        "both", description="(1 + cosine) / 2 for network and sentences, or for the network only",
    )
    similarity_range: Literal["cosine", "unit"] = Field(
        "cosine",
        description="what the network gives: `cosine` is rescaled by (1 + s) / 2, `unit` (a probability) is not",
    )
    semantics: SemanticSource = semantics_field("encoder")
    warmup_epochs: int = warmup_epochs()

    @property
    def semantic_source(self) -> SemanticSource | None:
        return self.semantics

    @property
    def needed_scores(self) -> frozenset[Score]:
        return frozenset({"cosine"}) if self.similarity_range == "cosine" else frozenset({"probability"})


class AdditiveMarginSpec(LossSpec):
    """Softmax with a margin that grows with the similarity of captions (Li et al. 2020); our adaptation to pairs."""

    equation: ClassVar[str] = (
        "mean over queries of -log softmax of the pair among (S_ij + m_ij [j != i]) / t,  m_ij = u Q_ij + v,  "
        "u and v learned; mean of both directions"
    )
    source: ClassVar[str] = "Li et al. 2020 (class-relevant additive margin); in Malali and Keller, Table 11"
    scores: ClassVar[frozenset[Score]] = ALL_SCORES - {"order"}

    name: Literal["additive_margin"] = "additive_margin"
    slope: float = tunable(0.1, Range(low=0.0, high=0.3), description="start of u", paper="our choice")
    intercept: float = tunable(0.05, Range(low=0.0, high=0.2), description="start of v", paper="our choice")
    learned: bool = Field(True, description="train u and v; false keeps them")
    softmax_temperature: float = tunable(
        0.1, Range(low=0.01, high=0.3, log=True), gt=0, description="t, divides similarities", paper="our choice",
    )
    semantics: SemanticSource = semantics_field("svd")

    @property
    def semantic_source(self) -> SemanticSource | None:
        return self.semantics
