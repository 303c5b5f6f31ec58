"""Semantic centre loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.spec.base import Choices, Kind, Range, ShortSeed, tunable
from vsetune.losses.parts.spec_fields import TripletMarginFields

CenterUpdate = Literal["count_normalised", "sgd"]
_QUANTISED = {"centers": "quantised"}
_ADAPTIVE = {"adaptive": True}


class SemanticCenterSpec(TripletMarginFields):
    """Semantic centre loss: every image with its captions gathers around a learned centre (Malali and Keller).

    Its three phases are data of the study (`training.phases`): centres of concepts; quantised centres with a frozen
    network; everything, with adaptive margins.
    """

    equation: ClassVar[str] = (
        "w_c L_C + w_t L_T + w_i CE_image + w_y CE_caption;  L_C = mean_i [|x_i - c_n(i)|^2 - delta]+ + "
        "[|y_i - c_n(i)|^2 - delta]+  (concepts), or with soft assignments over N_q centres + a sum_{k<l} "
        "[2 delta - |c_k - c_l|^2]+  (quantised);  L_T: adaptive_margin"
    )
    source: ClassVar[str] = "Malali and Keller, Eq. 5-13"
    kinds: ClassVar[frozenset[Kind]] = frozenset({"embedding"})

    name: Literal["semantic_center"] = "semantic_center"
    centers: Literal["concepts", "quantised"] = Field(
        "concepts", description="one centre per training image (Eq. 6), or few centres with soft assignments (Eq. 7)",
    )
    quantised_centers: int = tunable(
        1000, Choices(choices=[50, 100, 300, 1000]), ge=1, le=1_000_000, when=_QUANTISED,
        description="N_q, number of centres", paper="Malali and Keller: 1000; Flickr8k 100",
    )
    delta: float = tunable(
        0.1, Range(low=0.0, high=1.0), ge=0,
        description="squared distance to a centre that costs nothing", paper="no value in the paper",
    )
    repulsion: float = tunable(
        1.0, Range(low=0.1, high=3.0, log=True), ge=0, when=_QUANTISED,
        description="a, weight of the repulsion of centres", paper="Malali and Keller: 1",
    )
    repulsion_every: int = Field(
        1, ge=1, le=10**9,
        description="steps until the repulsion (N_q^2 distances) is worked out anew; the last one acts meanwhile",
    )
    center_weight: float = tunable(1.0, Range(low=0.1, high=3.0, log=True), ge=0, description="w_c", paper="Eq. 5: 1")
    triplet_weight: float = tunable(1.0, Range(low=0.1, high=3.0, log=True), ge=0, description="w_t", paper="Eq. 5: 1")
    image_class_weight: float = Field(1.0, ge=0, description="w_i, cross-entropy of the image classifier")
    caption_class_weight: float = Field(1.0, ge=0, description="w_y, cross-entropy of the caption classifier")
    train_classifiers: bool = Field(True, description="false keeps the two classifiers as they are (second phase)")
    center_learning_rate: float = tunable(
        0.5, Range(low=0.05, high=1.0, log=True), gt=0,
        description="SGD rate of the centres", paper="Malali and Keller: 0.5",
    )
    center_update: CenterUpdate = Field(
        "count_normalised",
        description="`count_normalised`: step towards the mean, divided by 1 + count (original centre loss); `sgd`: "
        "the plain gradient of L_C summed over the batch, which overshoots at a rate of 0.5",
    )
    center_start: Literal["first_seen", "normal"] = Field(
        "first_seen", description="start of a concept's centre: its first embedding, or N(0, 1/D)",
    )
    quantised_start: Literal["kmeans", "random"] = Field(
        "kmeans", description="start of quantised centres: k-means of the concepts' centres, or N(0, 1/D)",
    )
    seed: ShortSeed = Field(0, description="of k-means")
    on_sphere: bool = Field(False, description="project centres to unit length after every step")
    adaptive: bool = Field(False, description="margins of the triplet term grow (third phase); else they stay")
    growth: float = tunable(
        1.03, Range(low=1.01, high=1.1), ge=1, when=_ADAPTIVE,
        description="c, factor of one update", paper="Malali and Keller: 1.03",
    )
    ratio: float = tunable(
        0.8, Range(low=0.6, high=0.95), ge=0, le=1, when=_ADAPTIVE,
        description="r, share of triplets above which a margin grows", paper="Malali and Keller: 0.8",
    )
    interval: int = tunable(
        500, Range(low=50, high=1000, log=True, integer=True), ge=1, le=10**9, when=_ADAPTIVE,
        description="q, training steps between updates", paper="Malali and Keller: 500",
    )
    cap: float = tunable(
        0.5, Range(low=0.3, high=1.0), gt=0, when=_ADAPTIVE,
        description="margins never exceed this", paper="our addition",
    )

    @property
    def lasting_sizes(self) -> Mapping[str, int]:
        return {"quantised_centers": self.quantised_centers} if self.centers == "quantised" else {}

    @property
    def margins_grow(self) -> bool:
        return self.adaptive and self.growth > 1
