"""Hyperparameters of SCAN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from vsetune.config.component_specs import NetworkSpec, PairCost
from vsetune.config.spec.base import Kind, Range, Score, tunable
from vsetune.networks.parts.network_fields import Norm, norm_with_added_length

_PUBLISHED: dict[str, dict[str, float]] = {
    "text_to_image": {"attention_scale": 9.0, "pooling_scale": 6.0},
    "image_to_text": {"attention_scale": 4.0, "pooling_scale": 5.0},
}


class ScanSpec(NetworkSpec):
    """SCAN (Lee et al. 2018): cosines of words with the regions they attend to, or of regions with words, pooled."""

    source: ClassVar[str] = "Lee et al., ECCV 2018"
    default_parameters: ClassVar[int] = 13_245_120
    later_keys: ClassVar[tuple[str, ...]] = ("norm",)

    def pair_cost(self, *, regions: int, words: int) -> PairCost:
        """Dot products of words and regions, then a quadratic form per word or per region (Gram shortcut)."""
        attending, attended = (words, regions) if self.direction == "text_to_image" else (regions, words)
        flops = 2 * regions * words * self.embedding_size + 2 * attending * attended**2
        return PairCost(flops=flops, numbers=6 * regions * words)

    @property
    def kind(self) -> Kind:
        return "score"

    name: Literal["scan"] = "scan"
    direction: Literal["text_to_image", "image_to_text"] = Field(
        "text_to_image", description="`text_to_image`: words attend to regions; `image_to_text`: regions to words",
    )
    pooling: Literal["lse", "mean", "max", "sum"] = Field(
        "lse", description="over what attends; `lse` is log-sum-exp, which grows with the number of words or regions",
    )
    attention_scale: float = tunable(
        9.0, Range(low=2.0, high=20.0, log=True), gt=0,
        description="lambda, multiplies attention before its softmax; unless given, 9 for text_to_image and 4 for "
        "image_to_text",
        paper="SCAN: 9 (t2i), 4 (i2t)",
    )
    pooling_scale: float = tunable(
        6.0, Range(low=2.0, high=30.0, log=True), gt=0, when={"pooling": "lse"},
        description="eta of log-sum-exp: S = log(sum exp(eta * cosine)) / eta; unless given, 6 for text_to_image and "
        "5 for image_to_text",
        paper="SCAN: 6 (t2i), 5 (i2t on Flickr30K), 20 (i2t on COCO)",
    )
    attention_normalization: Literal["clipped_l2", "clipped", "l2", "softmax", "none"] = Field(
        "clipped_l2",
        description="of products before the softmax: clipped below 0, then unit length over what attends; or only "
        "one of the two, a softmax over what attends, nothing",
    )
    leak: float = Field(
        0.1, ge=0, lt=1, description="slope that clipping leaves below 0: 0.1 in the released code, 0 in the paper",
    )
    norm: Norm = norm_with_added_length()
    weight_norm: bool = Field(False, description="image map with weight normalisation (one norm for the whole matrix)")

    @property
    def score(self) -> Score:
        return "cosine" if self.pooling in ("mean", "max") else "unbounded"

    @model_validator(mode="before")
    @classmethod
    def _scales_of_the_direction(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        direction = given.get("direction", "text_to_image")
        published = _PUBLISHED.get(direction, {}) if isinstance(direction, str) else {}
        return published | dict(given)
