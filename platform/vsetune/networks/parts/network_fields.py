"""Fields that specs of several networks share, and the CNN of a network that reads photographs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from vsetune.config.spec.base import Size, Spec
from vsetune.errors import Problem

Norm = Literal["guarded", "released"]
RegionNormalization = Literal["channel_over_regions", "feature"]

_ADDED_TO_LENGTHS = 1e-8


def norm_with_added_length() -> Norm:
    """The field of networks whose released code adds 1e-8 to the lengths it divides by (SCAN, SGRAF)."""
    return Field(
        "guarded",
        description="of vectors, and of attention over what attends: `guarded` divides by the length, and zero stays "
        "zero; `released` by the length plus 1e-8, which moves short attention (decision 0030)",
    )


def added_to_lengths(norm: Norm) -> float:
    """The number that `unit_length` and `inverse_length` add to lengths under this norm."""
    return _ADDED_TO_LENGTHS if norm == "released" else 0.0


def region_normalization() -> RegionNormalization:
    """The field of networks whose released code normalises regions along the wrong axis (VSRN, CGMN)."""
    return Field(
        "channel_over_regions",
        description="`channel_over_regions` gives each channel unit length across the regions, as the released code; "
        "`feature` gives each region vector unit length",
    )


EFFICIENTNET, VGG19, RANDOM = "efficientnet_lite0", "vgg19", "random"
"""What `model` may be beside a CNN of `transformers`."""


class BackboneSpec(Spec):
    """A CNN, what it starts from and when it trains. Each network sets its own defaults."""

    model: str = Field(
        "microsoft/resnet-50",
        description="hub id, folder or package:NAME of a CNN of `transformers`; `efficientnet_lite0`; `vgg19` with "
        "`weights`; `random`: a small ResNet that starts at random, for small images",
    )
    revision: str | None = Field(None, description="commit of the hub repository, for exact repetition")
    weights: str | None = Field(
        None, description="of vgg19: a file with torchvision's names, .pth (weights only) or .safetensors",
    )
    depths: tuple[Annotated[int, Field(le=1000)], ...] = Field(
        (1, 1), max_length=20, description="of `random`: residual layers of each stage",
    )
    widths: tuple[Size, ...] = Field((16, 32), max_length=20, description="of `random`: channels of each stage")
    batch_norm: Literal["frozen", "running"] = Field(
        "frozen",
        description="`frozen`: running statistics stay as they are (VSE-infinity); `running`: batch statistics in "
        "training, and the running ones drift even while the CNN is frozen (the code of VSE++ and MSE**); a CNN that "
        "starts at random wants this one",
    )
    rate_factor: float = Field(1.0, gt=0, description="times training.learning_rate")
    start_epoch: float = Field(0.0, ge=0, description="the CNN is frozen before it")

    @model_validator(mode="after")
    def _vgg_reads_a_file(self) -> BackboneSpec:
        if (self.model == VGG19) != (self.weights is not None):
            raise ValueError(Problem.of(
                "VSE-N019", "weights is the file of model vgg19, and vgg19 needs one (torchvision's vgg19); set both "
                "or neither",
            ))
        return self

    @model_validator(mode="after")
    def _stages_agree(self) -> BackboneSpec:
        if not len(self.depths) == len(self.widths) > 0:
            raise ValueError(Problem.of(
                "VSE-N020", "depths has {depths} numbers, widths {widths}; need one of each per stage",
                depths=len(self.depths), widths=len(self.widths),
            ))
        for name, numbers in (("depths", self.depths), ("widths", self.widths)):
            for stage, number in enumerate(numbers):
                if number < 1:
                    raise ValueError(Problem.of(
                        "VSE-N021", "{name}[{stage}]: got {got}, need a number >= 1", name=name, stage=stage,
                        got=number,
                    ))
        return self
