"""The base class of networks: images and captions are encoded separately, then every pair gets a score."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vsetune.config.component_specs import NetworkSpec
from vsetune.config.spec.base import Kind
from vsetune.config.spec.overriding import require_callable_overrides
from vsetune.errors import ConfigError, Problem
from vsetune.metrics.vectors import at_least_float32 as at_least_float32  # networks import both from here
from vsetune.metrics.vectors import lengths
from vsetune.metrics.vectors import unit_length as unit_length
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.parts.network_fields import BackboneSpec
from vsetune.networks.sentence_writing import SentenceWriting


@dataclass(frozen=True)
class TrainingItems:
    """A batch that the network has encoded in training mode, for its own losses.

    words: the inputs that the captions were encoded from. caption_rows: (m,) row of each caption's image. negatives:
    (n, m) bool, False for a caption of the same image.
    """

    images: Encoded
    captions: Encoded
    words: CaptionInputs
    caption_rows: Tensor
    negatives: Tensor


@dataclass(frozen=True)
class NetworkGroup:
    """Parameters that train alike. factor: of the learning rate of the training. start_epoch: frozen before it."""

    parameters: list[nn.Parameter]
    factor: float = 1.0
    start_epoch: float = 0.0


@dataclass(frozen=True)
class FrozenTower:
    """weights: all modules and tensors that the vectors depend on. vectors: (n, W) of photographs (n, crops, 3, S, S)
    uint8, in evaluation mode."""

    weights: Mapping[str, Tensor]
    vectors: Callable[[Tensor], Tensor]


class Network(nn.Module, ABC):
    """Encodes images and captions separately, then compares every image with every caption.

    kind: contents of `Encoded.vectors`, see `vsetune.config.spec.base`. Encoded items and scores are float32 or wider,
    also under autocast. In evaluation mode an encoded item depends only on its own image or caption, and a score only
    on its own pair, never on the batch or on padding. Values beyond the lengths of items are set to zero when an
    encoder returns (`Encoded.without_padding`), for every subclass.
    """

    kind: Kind
    embedding_size: int
    needs_regions: ClassVar[bool] = False
    """Whether the constructor needs the number of regions."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        require_callable_overrides(cls, Network)
        for name in ("encode_images", "encode_captions"):
            if name in vars(cls):
                setattr(cls, name, _padded_by_zeros(vars(cls)[name]))

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.kind = spec.kind
        self.embedding_size = spec.embedding_size

    @abstractmethod
    def encode_images(self, images: ImageInputs) -> Encoded:
        """Every image."""

    @abstractmethod
    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        """Every caption."""

    def similarity(self, images: Encoded, captions: Encoded) -> Tensor:
        """(n, m) scores, larger is closer, with gradient; here dot products: cosines of vectors of unit length."""
        with torch.autocast(images.device.type, enabled=False):
            return at_least_float32(images.vectors) @ at_least_float32(captions.vectors).T

    def scores_of_pairs(self, images: Encoded, captions: Encoded, rows: Tensor, columns: Tensor) -> Tensor:
        """(p,) scores of the images rows (p,) with the captions columns (p,), as `similarity` gives them.

        By default all scores are computed and these selected; a network with expensive pairs computes only these.
        """
        return self.similarity(images, captions)[rows, columns]

    def attention(self, images: Encoded, captions: Encoded) -> Tensor | None:
        """(n, m, L, R) weights with which words attend to regions in `similarity`; None where words do not attend.

        They sum to 1 over the real regions and are 0 elsewhere; rows of padded words are meaningless.
        """
        return None

    def sentence_writing(self) -> SentenceWriting | None:
        """The writing of sentences, for display; None for a network that writes none."""
        return None

    def auxiliary_losses(self, items: TrainingItems) -> dict[str, Tensor]:
        """Scalars to add to the retrieval loss, each with its weight, by the name they are logged under."""
        return {}

    def begin_phase(self, spec: NetworkSpec) -> None:
        """Begin a phase of the training, the first one included. `spec` differs from that of the constructor only
        in the weights of the network's losses (`NetworkSpec.own_loss_weights`). By default nothing changes."""

    def parameter_groups(self) -> list[NetworkGroup]:
        """Every parameter in one group; by default all train alike from the start."""
        return [NetworkGroup(list(self.parameters()))]

    def set_epoch(self, epoch: float) -> None:
        """The next step starts at this epoch (fractions count): freeze what does not train yet, see NetworkGroup."""
        for group in self.parameter_groups():
            for parameter in group.parameters:
                parameter.requires_grad_(epoch >= group.start_epoch)

    def take_loss_parameters(self, learned: Mapping[str, Tensor]) -> None:
        """Use learned values of a loss in the similarities, or store them; most networks use none."""

    def loss_parameters(self) -> dict[str, Tensor]:
        """Values stored with the weights that a loss may start from, by name; most networks have none."""
        return {}

    def frozen_tower(self) -> FrozenTower | None:
        """The image tower of a network whose spec says that its vectors are constant (`has_constant_images`).

        `encode_images` then also takes images without pixels, whose only region is such a vector.
        """
        return None


def _padded_by_zeros(encode: Callable[..., Encoded]) -> Callable[..., Encoded]:
    """The encoder, with zeros beyond the lengths of its items."""

    @wraps(encode)
    def encoded(network: Network, inputs: Any) -> Encoded:
        items = encode(network, inputs)
        if not isinstance(items, Encoded):
            problem = Problem.of(
                "VSE-N026", "{encoder} gave a {got}, need `Encoded(vectors)`", encoder=encode.__name__,
                got=type(items).__name__,
            )
            raise ConfigError(problem.at(_place_of(encode)))
        return items.without_padding()

    return encoded


def divided_by_length(vectors: Tensor, *, least: float = 0.0) -> Tensor:
    """Vectors along the last axis divided by their length, at least `least`, as released code does it: a zero vector
    becomes NaN where `least` is 0, and else gets a gradient of 1 / least."""
    vectors = at_least_float32(vectors)
    return vectors / lengths(vectors).clamp_min(least)


def region_mask(region_counts: Tensor, regions: int) -> Tensor:
    """(images, regions) bool, True for real regions. A count below 1 is read as 1: one region, all zero."""
    return word_mask(region_counts.clamp_min(1), regions)


def known_counts(images: ImageInputs) -> Tensor | None:
    """(n,) real regions of each image as `region_mask` reads them, for images on a GPU that have a CPU copy."""
    counts = images.host_counts
    return None if counts is None else counts.clamp(1, images.features.shape[1])


def word_mask(lengths: Tensor, words: int) -> Tensor:
    """(captions, words) bool, True for real words. lengths: (captions,)."""
    return torch.arange(words, device=lengths.device) < lengths[:, None]


_SHAPES = {"embedding": "(n, D)", "several_embeddings": "(n, K, D)", "probabilistic": "(n, D)"}


def require_sound_items(
    network: Network, name: str, images: Encoded, captions: Encoded, *, sizes: tuple[int, int]
) -> None:
    """ConfigError unless the batch has as many items. name: of the network. sizes: images, captions."""
    for encoded, side, size in ((images, "images", sizes[0]), (captions, "captions", sizes[1])):
        encoder, shape = f"encode_{side}", tuple(encoded.vectors.shape)
        encode = getattr(type(network), encoder)
        if len(encoded) != size:
            raise _wrong(encode, name, Problem.of(
                "VSE-N027", "{encoder} gave vectors of shape {got} for {size} {items}; need one each", encoder=encoder,
                got=shape, size=size, items=side,
            ))
        need = _SHAPES.get(network.kind)
        if need is not None and len(shape) != need.count(",") + 1:
            raise _wrong(encode, name, Problem.of(
                "VSE-N028", "{encoder} gave vectors of shape {got}; kind {kind} needs {need}", encoder=encoder,
                got=shape, kind=network.kind, need=need,
            ))


def require_sound_scores(network: Network, name: str, scores: object, *, sizes: tuple[int, int]) -> None:
    """ConfigError unless this is a similarity of every image with every caption that the network can learn from."""
    similarity = type(network).similarity
    if not isinstance(scores, Tensor):
        raise _wrong(similarity, name, Problem.of(
            "VSE-N029", "similarity gave a {got}, need a tensor", got=type(scores).__name__
        ))
    if tuple(scores.shape) != sizes:
        raise _wrong(similarity, name, Problem.of(
            "VSE-N030", "similarity has shape {got}, need {need}: a row per image, a column per caption",
            got=tuple(scores.shape), need=sizes,
        ))
    if scores.dtype not in (torch.float32, torch.float64):
        raise _wrong(similarity, name, Problem.of(
            "VSE-N031", "similarity is of {got}, need float32; use `at_least_float32`", got=scores.dtype
        ))
    learns = any(parameter.requires_grad for parameter in network.parameters())
    if network.training and torch.is_grad_enabled() and learns and not scores.requires_grad:
        raise _wrong(similarity, name, Problem.of(
            "VSE-N032", "similarity has no gradient, so nothing would be learned; do not detach it"
        ))


def _wrong(function: Callable[..., object], name: str, problem: Problem) -> ConfigError:
    return ConfigError(problem.at(f"network {name}").at(_place_of(function)))


def _place_of(function: Callable[..., object]) -> str:
    code = getattr(function, "__wrapped__", function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode and no gradient; afterwards the network is in training mode if it was before."""
    was_training = network.training
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        network.train(was_training)


def groups_beside(network: nn.Module, groups: Sequence[NetworkGroup]) -> list[NetworkGroup]:
    """These groups after one of all other parameters, which train from the start at the rate of the training."""
    taken = {id(parameter) for group in groups for parameter in group.parameters}
    return [NetworkGroup([each for each in network.parameters() if id(each) not in taken]), *groups]


def backbone_groups(backbone: nn.Module | None, spec: BackboneSpec) -> list[NetworkGroup]:
    """The group of a CNN, if there is one."""
    if backbone is None:
        return []
    return [NetworkGroup(list(backbone.parameters()), spec.rate_factor, spec.start_epoch)]
