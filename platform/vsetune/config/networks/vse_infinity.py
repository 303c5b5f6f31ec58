"""Hyperparameters of VSE-infinity."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.base import Range, tunable
from vsetune.config.networks.base import NetworkSpec


class VseInfinitySpec(NetworkSpec):
    """VSE-infinity (Chen et al. 2021) with Bi-GRU text tower: generalised pooling over regions and words."""

    source: ClassVar[str] = "Chen et al., CVPR 2021"

    name: Literal["vse_infinity"] = "vse_infinity"
    pooling_size: int = Field(32, ge=2, multiple_of=2, description="positional encoding and GRU size of GPO")
    image_mlp: bool = Field(True, description="residual MLP on regions (region mode); false is grid mode")
    augment: bool = Field(True, description="drop regions and words in training")
    region_dropout: float = tunable(
        0.2, Range(low=0.0, high=0.4), ge=0, lt=1,
        description="probability that a region is dropped", paper="VSE-infinity: 0.2",
    )
    word_dropout: float = Field(0.2, ge=0, lt=1, description="probability that a word is masked, swapped or deleted")
