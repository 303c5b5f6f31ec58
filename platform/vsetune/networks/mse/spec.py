"""Hyperparameters of the MSE** network."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.component_specs import NetworkSpec
from vsetune.config.sources.trial_inputs import NetworkReads, PixelInput
from vsetune.networks.parts.network_fields import BackboneSpec

_PAPER_WINDOW = 224 / 256


class MseBackboneSpec(BackboneSpec):
    """The CNN of MSE**."""

    model: str = Field("microsoft/resnet-34", description=BackboneSpec.model_fields["model"].description)
    start_epoch: float = Field(150.0, ge=0, description="the CNN is frozen before it (150 of 225 passes over images)")


class MseSpec(NetworkSpec):
    """MSE** (Huteau et al. 2023): the average of a CNN's last map, mapped once; the last state of a GRU per caption."""

    source: ClassVar[str] = "Huteau et al., 2023"
    default_parameters: ClassVar[int] = 9_171_648
    later_keys: ClassVar[tuple[str, ...]] = ("text",)

    name: Literal["mse"] = "mse"
    image_input: Literal["features", "pixels"] = Field(
        "features", description="`pixels`: the CNN reads photographs; `features`: the mean of the stored regions",
    )
    backbone: MseBackboneSpec = Field(MseBackboneSpec(), description="the CNN that reads pixels")
    image_size: int = Field(224, ge=32, le=4096, description="pixels per side that the CNN reads")
    crop: Literal["random_resized", "square_window"] = Field(
        "random_resized",
        description="of training images: `random_resized` is a window of 0.33 to 1 of the area (released code); "
        "`square_window` has 224/256 of both sides (nearest to the paper)",
    )
    flip: float = Field(0.5, ge=0, le=1, description="share of training images mirrored; swaps left and right in words")
    embedding_start: Literal["paper", "released"] = Field(
        "paper", description="word embeddings start at N(0, 1/word_size); `released`: mean 1 (the code)",
    )

    text: Literal["gru", "bi_sum"] = Field(
        "gru", description="`gru`: a caption is the last state of a GRU (paper, published settings); `bi_sum`: the sum "
        "of the end states of both directions of a Bi-GRU (default of the released class)",
    )

    @property
    def reads(self) -> NetworkReads:
        if self.image_input == "features":
            return NetworkReads()
        low, high = (0.33, 1.0) if self.crop == "random_resized" else (_PAPER_WINDOW, _PAPER_WINDOW)
        return NetworkReads(pixels=PixelInput(
            size=self.image_size, crop=self.crop, crop_low=low, crop_high=high, flip=self.flip, swaps_sides=True,
            evaluation="centre_crop",
        ))
