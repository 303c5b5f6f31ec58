"""Hyperparameters of VSRN."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.component_specs import NetworkSpec
from vsetune.config.spec.base import Range, tunable
from vsetune.networks.parts.network_fields import RegionNormalization, region_normalization


class VsrnSpec(NetworkSpec):
    """VSRN (Li et al. 2019): graph reasoning between regions, a GRU over regions, caption generation as second task."""

    source: ClassVar[str] = "Li et al., ICCV 2019"
    default_parameters: ClassVar[int] = 127_292_048
    own_loss_weights: ClassVar[tuple[str, ...]] = ("captioning_weight",)

    name: Literal["vsrn"] = "vsrn"
    embedding_size: int = Field(
        2048, ge=1, le=65_536, description="D, size of the joint space, of regions and of both GRUs",
    )
    mode: Literal["coco", "flickr30k"] = Field(
        "flickr30k",
        description="`coco` normalises regions before the graph too; `flickr30k` has a BatchNorm behind the GRU "
        "instead (LSEH uses it for IAPR TC-12)",
    )
    region_normalization: RegionNormalization = region_normalization()
    graph: Literal["released", "paper"] = Field(
        "released",
        description="`released` divides affinities by the number of regions and ends a block with BatchNorm; `paper` "
        "does neither",
    )
    captioning_weight: float = tunable(
        1.0, Range(low=0.0, high=2.0), ge=0,
        description="weight of the caption generation loss; 0 leaves the generator out", paper="VSRN: 1",
    )
    captioning_size: int = Field(512, ge=1, le=65_536, description="hidden size of the caption generator")
    captioning_words: int = Field(
        60, ge=2, le=1000,
        description="ids of a caption, start and end included, that the generator reads; longer ones are cut",
    )
    captioning_dropout: float = Field(0.2, ge=0, lt=1, description="dropout on the generator's inputs")
