"""Hyperparameters of Malali and Keller's network."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.component_specs import NetworkSpec
from vsetune.config.sources.trial_inputs import NetworkReads, PixelInput
from vsetune.networks.parts.network_fields import BackboneSpec


class MalaliKellerBackboneSpec(BackboneSpec):
    """The CNN of Malali and Keller."""

    model: str = Field("microsoft/resnet-152", description=BackboneSpec.model_fields["model"].description)
    start_epoch: float = Field(
        45.0, ge=0, description="the CNN is frozen before it (phases 1 and 2: 30 and 15 epochs)",
    )


class MalaliKellerSpec(NetworkSpec):
    """Malali and Keller: the average of a CNN's last map, mapped once; both end states of a Bi-GRU per caption.

    The classifiers and the assignment layer of its loss belong to the loss `semantic_center`.
    """

    source: ClassVar[str] = "Malali and Keller, IEEE TPAMI 2022"
    default_parameters: ClassVar[int] = 7_598_784

    name: Literal["malali_keller"] = "malali_keller"
    embedding_size: int = Field(
        1024, ge=2, le=65_536, multiple_of=2,
        description="D, size of the joint space; each direction of the GRU has half of it",
    )
    image_input: Literal["features", "pixels"] = Field(
        "features", description="`pixels`: the CNN reads photographs; `features`: the mean of the stored regions",
    )
    backbone: MalaliKellerBackboneSpec = Field(
        MalaliKellerBackboneSpec(), description="the CNN that reads pixels (the paper's other one is vgg19)",
    )
    image_size: int = Field(224, ge=32, le=4096, description="pixels per side that the CNN reads")
    flip: float = Field(0.5, ge=0, le=1, description="share of training images mirrored; captions stay as they are")
    evaluation_crops: int = Field(
        20, ge=0, le=1000,
        description="random crops whose embeddings are averaged in evaluation; 0: one crop of the centre",
    )

    @property
    def reads(self) -> NetworkReads:
        if self.image_input == "features":
            return NetworkReads()
        return NetworkReads(pixels=PixelInput(
            size=self.image_size, crop="square_window", crop_low=0.8, crop_high=1.0, flip=self.flip,
            evaluation="centre_crop", evaluation_crops=self.evaluation_crops,
        ))
