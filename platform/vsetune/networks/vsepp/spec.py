"""Hyperparameters of VSE++."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from vsetune.config.component_specs import NetworkSpec
from vsetune.config.sources.trial_inputs import NetworkReads, PixelInput
from vsetune.config.spec.base import Score
from vsetune.errors import Problem
from vsetune.networks.parts.network_fields import BackboneSpec


class VseppBackboneSpec(BackboneSpec):
    """The CNN of VSE++."""

    model: str = Field("microsoft/resnet-152", description=BackboneSpec.model_fields["model"].description)
    start_epoch: float = Field(30.0, ge=0, description="the CNN is frozen before it (30 epochs, then 15 more)")


class VseppSpec(NetworkSpec):
    """VSE++ (Faghri et al. 2018): one linear map per image, last state of a GRU per caption."""

    source: ClassVar[str] = "Faghri et al., BMVC 2018"
    default_parameters: ClassVar[int] = 9_171_648

    name: Literal["vsepp"] = "vsepp"
    image_input: Literal["global", "mean", "flatten", "pixels"] = Field(
        "mean",
        description="`global` needs one vector per image; `mean` averages regions; `flatten` concatenates them "
        "(the LSEH tables) and needs the same number of regions in every image; `pixels`: a CNN reads photographs",
    )
    backbone: VseppBackboneSpec = Field(VseppBackboneSpec(), description="the CNN that reads pixels")
    image_size: int = Field(224, ge=32, le=4096, description="pixels per side that the CNN reads")
    absolute: bool = Field(False, description="absolute value of both embeddings (order embeddings)")
    normalize_images: bool = Field(True, description="unit-length image embeddings; false is the VSE0 baseline")
    similarity: Literal["cosine", "order"] = Field(
        "cosine", description="`order`: minus the length of max(0, caption - image); needs absolute: true",
    )

    @property
    def reads(self) -> NetworkReads:
        if self.image_input != "pixels":
            return NetworkReads()
        return NetworkReads(pixels=PixelInput(
            size=self.image_size, crop="random_resized", flip=0.5, evaluation="centre_crop",
        ))

    @property
    def score(self) -> Score:
        if self.similarity == "order":
            return "order"
        return "cosine" if self.normalize_images else "unbounded"

    @model_validator(mode="after")
    def _order_needs_absolute(self) -> VseppSpec:
        if self.similarity == "order" and not self.absolute:
            raise ValueError(Problem.of(
                "VSE-N023", "similarity order compares embeddings without negative entries; also set absolute: true"
            ))
        return self
