"""Hyperparameters of CGMN."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from vsetune.config.component_specs import NetworkSpec
from vsetune.config.sources.trial_inputs import NetworkReads
from vsetune.config.spec.base import Range, tunable
from vsetune.errors import Problem
from vsetune.networks.parts.network_fields import Norm, RegionNormalization, region_normalization


class CgmnSpec(NetworkSpec):
    """CGMN (Cheng et al. 2022): graph convolution over regions and over words, a GRU over each graph's nodes.

    Its recipe starts with 500 batches of the sum of hinges and divides the learning rate by ten at epochs 20 and 25.
    Both are phases of the training; 500 batches of 128 pairs are 0.4413 of Flickr30K's 145,000:

        loss: {name: lmh, margin: 0.2}
        training:
          learning_rate_step: null
          phases:
            - {epochs: 0.4413, loss: {warmup_epochs: 1}}
            - {epochs: 19.5587}
            - {epochs: 5, learning_rate_factor: 0.1}
            - {learning_rate_factor: 0.01}

    A phase starts with fresh optimizers; the released code keeps Adam's moments.
    """

    source: ClassVar[str] = "Cheng et al., ACM TOMM 2022"
    default_parameters: ClassVar[int] = 161_988_288
    later_keys: ClassVar[tuple[str, ...]] = ("norm",)
    own_loss_weights: ClassVar[tuple[str, ...]] = ("matching_weight",)

    @property
    def needs_pairs(self) -> bool:
        return self.matching_weight > 0

    @property
    def reads(self) -> NetworkReads:
        return NetworkReads(boxes=self.spatial_graph, dependencies=self.caption_graph == "dependencies")

    name: Literal["cgmn"] = "cgmn"
    embedding_size: int = Field(2048, ge=1, le=65_536, description="D, size of the joint space and of the nodes")
    spatial_graph: bool = Field(
        False,
        description="second image graph over boxes that overlap, or over neighbouring grid cells; off as in the "
        "published commands",
    )
    box_overlap: float = Field(
        0.4, gt=0, le=1, description="intersection over union from which two boxes are joined (released: 0.4)",
    )
    region_normalization: RegionNormalization = region_normalization()
    norm: Norm = Field(
        "guarded",
        description="what a zero vector becomes where vectors are divided by their lengths: `guarded` leaves it zero "
        "without gradient; `released` follows the released code: NaN for an embedding or a channel of regions, a "
        "gradient of 1e8 and more for a node",
    )
    edge_weights: Literal["released", "cosine"] = Field(
        "released",
        description="of spatial and caption graphs: x_a x_b / |x_b|^2 (`released`, divides twice by the same norm), or "
        "the cosine of a and b",
    )
    caption_graph: Literal["dependencies", "dense"] = Field(
        "dependencies", description="words joined by the parse of the caption, or all words; both with self-loops",
    )
    caption_statistics: Literal["words", "padded"] = Field(
        "words",
        description="what BatchNorm of the caption graph counts in training: real words, or padding too (released)",
    )
    matching_weight: float = tunable(
        1 / 3, Range(low=0.03, high=3.0, log=True), ge=0,
        description="of the node-matching loss beside the retrieval loss; 0: none", paper="CGMN: 1/3",
    )
    matching_margin: float = Field(0.2, ge=0, description="margin of the node-matching loss")

    @model_validator(mode="after")
    def _released_norm_is_of_channels(self) -> CgmnSpec:
        if self.norm == "released" and self.region_normalization == "feature":
            raise ValueError(Problem.of(
                "VSE-N025", "norm: released divides channels over regions, got region_normalization feature, whose "
                "padded regions it would make NaN; set norm: guarded, or region_normalization: channel_over_regions",
            ))
        return self
