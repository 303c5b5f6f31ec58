"""Hyperparameters of every network. The network itself stands in `vsetune.networks`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from vsetune.config.base import Range, Spec, tunable


class NetworkSpec(Spec):
    """What all networks share. `name` selects the network."""

    embedding_size: int = Field(1024, ge=1, description="D, size of the joint space")
    word_size: int = Field(300, ge=1, description="size of word embeddings")


class VseppSpec(NetworkSpec):
    """VSE++ (Faghri et al. 2018): one linear map per image, last state of a GRU per caption."""

    name: Literal["vsepp"] = "vsepp"
    image_input: Literal["global", "mean", "flatten"] = Field(
        "mean",
        description="`global` needs one vector per image; `mean` averages regions; `flatten` concatenates them "
        "(the LSEH tables) and needs the same number of regions in every image",
    )
    absolute: bool = Field(False, description="absolute value of both embeddings (order embeddings)")
    normalize_images: bool = Field(True, description="unit-length image embeddings; false is the VSE0 baseline")


class VseInfinitySpec(NetworkSpec):
    """VSE-infinity (Chen et al. 2021) with Bi-GRU text tower: generalised pooling over regions and words."""

    name: Literal["vse_infinity"] = "vse_infinity"
    pooling_size: int = Field(32, ge=2, multiple_of=2, description="positional encoding and GRU size of GPO")
    image_mlp: bool = Field(True, description="residual MLP on regions (region mode); false is grid mode")
    augment: bool = Field(True, description="drop regions and words in training")
    region_dropout: float = tunable(
        0.2, Range(low=0.0, high=0.4), ge=0, lt=1,
        description="probability that a region is dropped", paper="VSE-infinity: 0.2",
    )
    word_dropout: float = Field(0.2, ge=0, lt=1, description="probability that a word is masked, swapped or deleted")


AnyNetwork = Annotated[VseppSpec | VseInfinitySpec, Field(discriminator="name")]
NETWORKS: dict[str, type[NetworkSpec]] = {"vsepp": VseppSpec, "vse_infinity": VseInfinitySpec}
