"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from vsetune.config.component_specs import DrawnNegatives, warmup_epochs
from vsetune.config.spec.base import Kind, Range, tunable
from vsetune.errors import Problem
from vsetune.losses.parts.spec_fields import HingeSpec


class IrtmSpec(HingeSpec):
    """Mean hinge over the h hardest negatives of each query (image-retrieval-text matching of TAGS-DC)."""

    equation: ClassVar[str] = (
        "1/B sum_i mean over the h hardest j of [m + S_ij - S_ii]+  +  1/B sum_j mean over the h hardest i of "
        "[m + S_ij - S_jj]+"
    )
    source: ClassVar[str] = "Fan et al. 2022 (TAGS-DC), Eq. 4-5; mean over h as in its released code"
    several_positives: ClassVar[bool] = False

    name: Literal["irtm"] = "irtm"
    hardest: int = tunable(
        31, Range(low=1, high=63, integer=True, log=True), ge=1, le=1_000_000,
        description="h, negatives per query; all of the batch when it has fewer", paper="TAGS-DC code: 31; Eq. 5: 1",
    )
    drawn: int = Field(
        0, ge=0, le=1_000_000,
        description="images, each with one of its captions, sampled from the data set for every step as further "
        "negatives (TAGS-DC: 399); for networks that score pairs; 0: none",
    )
    warmup_epochs: int = warmup_epochs()

    @model_serializer(mode="wrap")
    def _as_recorded(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without `drawn` where nothing is: fingerprints of such losses are as old as the first of them."""
        plain: dict[str, Any] = handler(self)
        return plain if self.drawn else {key: value for key, value in plain.items() if key != "drawn"}

    @model_validator(mode="after")
    def _one_place_of_further_negatives(self) -> IrtmSpec:
        if self.drawn and self.memory_size:
            raise ValueError(Problem.of(
                "VSE-L015", "drawn {drawn}: negatives are drawn for networks that score pairs, memory_size "
                "{memory_size} keeps those of networks that embed; set one of them to 0", drawn=self.drawn,
                memory_size=self.memory_size,
            ))
        if self.drawn and self.warmup_epochs:
            raise ValueError(Problem.of(
                "VSE-L016", "drawn {drawn}: in its {warmup_epochs} warmup_epochs the sum of hinges reads the batch "
                "alone; set warmup_epochs to 0, or drawn to 0 until a later phase of the training", drawn=self.drawn,
                warmup_epochs=self.warmup_epochs,
            ))
        return self

    @property
    def drawn_negatives(self) -> DrawnNegatives | None:
        return DrawnNegatives(self.drawn, self.hardest) if self.drawn else None

    @property
    def needed_kinds(self) -> frozenset[Kind]:
        return super().needed_kinds & {"score"} if self.drawn else super().needed_kinds
