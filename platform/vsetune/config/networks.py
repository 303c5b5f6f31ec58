"""Hyperparameters of every network. The network itself stands in `vsetune.networks`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from vsetune.config.base import Range, Spec, tunable

Kind = Literal["embedding", "several_embeddings", "probabilistic", "score"]
"""What a network makes of an item: one vector, K vectors, a Gaussian; or it only scores pairs."""

Score = Literal["cosine", "probability", "unbounded", "order"]
"""What its similarities are: in [-1, 1], in (0, 1), any number, or minus an order violation (0 at best)."""

ALL_KINDS: frozenset[Kind] = frozenset({"embedding", "several_embeddings", "probabilistic", "score"})
ALL_SCORES: frozenset[Score] = frozenset({"cosine", "probability", "unbounded", "order"})


class NetworkSpec(Spec):
    """What all networks share. `name` selects the network."""

    kind: ClassVar[Kind] = "embedding"

    @property
    def score(self) -> Score:
        """What the similarities of this network are."""
        return "cosine"

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
