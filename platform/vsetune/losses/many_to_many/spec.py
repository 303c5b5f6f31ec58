"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.component_specs import LossSpec, semantics_field, warmup_epochs
from vsetune.config.sources.trial_inputs import SemanticSource
from vsetune.config.spec.base import Range, Score, tunable

Lowest = Literal["network", "semantic"]
Direction = Literal["own_anchor", "as_printed"]
Rescale = Literal["both", "network"]


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
    lowest: Lowest = Field(
        "network",
        description="h_n: minimum of network similarities (Eq. 14) or of sentence similarities (text of Eq. 8)",
    )
    direction: Direction = Field(
        "own_anchor",
        description="`as_printed`: Eq. 9-10 to the letter, which repeat the log terms and h_n of image anchors",
    )
    rescale: Rescale = Field(
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
