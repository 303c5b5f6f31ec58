"""Hyperparameters of VSE++."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from vsetune.config.networks.base import NetworkSpec, Score


class VseppSpec(NetworkSpec):
    """VSE++ (Faghri et al. 2018): one linear map per image, last state of a GRU per caption."""

    source: ClassVar[str] = "Faghri et al., BMVC 2018"

    name: Literal["vsepp"] = "vsepp"
    image_input: Literal["global", "mean", "flatten"] = Field(
        "mean",
        description="`global` needs one vector per image; `mean` averages regions; `flatten` concatenates them "
        "(the LSEH tables) and needs the same number of regions in every image",
    )
    absolute: bool = Field(False, description="absolute value of both embeddings (order embeddings)")
    normalize_images: bool = Field(True, description="unit-length image embeddings; false is the VSE0 baseline")
    similarity: Literal["cosine", "order"] = Field(
        "cosine", description="`order`: minus the length of max(0, caption - image); needs absolute: true",
    )

    @property
    def score(self) -> Score:
        if self.similarity == "order":
            return "order"
        return "cosine" if self.normalize_images else "unbounded"

    @model_validator(mode="after")
    def _order_needs_absolute(self) -> VseppSpec:
        if self.similarity == "order" and not self.absolute:
            raise ValueError("similarity order compares embeddings without negative entries; also set absolute: true")
        return self
