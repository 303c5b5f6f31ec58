"""Inputs and outputs of a loss, the base class of all losses, and the check of what a loss gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vsetune.config.component_specs import LOSSES, LossSpec
from vsetune.config.spec.overriding import require_callable_overrides
from vsetune.errors import ConfigError, Message, Problem
from vsetune.metrics.vectors import at_least_float32 as at_least_float32  # losses import it from here

_OUTPUT_SHAPE = Message("VSE-L008", "{what} has shape {got}, need {need}")


@dataclass(frozen=True)
class Items:
    """The images or the captions of a batch in the joint space, float32 or wider, with gradient.

    vectors: (n, D), unit length where the network's similarity is a cosine; (n, K, D) for a network with K embeddings
    per item; the mean for a probabilistic network. log_scales: (n, D), logs of the standard deviations of a
    probabilistic network. residuals: (n, K, D), the part added by PVSE's attention, before normalisation.
    """

    vectors: Tensor
    log_scales: Tensor | None = None
    residuals: Tensor | None = None


@dataclass(frozen=True)
class Memory:
    """Pairs of earlier batches as further negatives; gradients reach the items of this batch only.

    caption_similarity: (N, P), this batch's images against P remembered captions. image_similarity: (P, M), P
    remembered images against this batch's captions. image_ids: (P,), of both. semantic_vectors: (P, k) or None.
    """

    caption_similarity: Tensor
    image_similarity: Tensor
    image_ids: Tensor
    semantic_vectors: Tensor | None = None


@dataclass(frozen=True)
class LossInputs:
    """One batch as a loss receives it.

    similarity: (N, M), larger is closer, with gradient. image_ids: (N,) image of each row, 0 to images of the train
    split - 1. caption_image_ids: (M,) image each caption belongs to. caption_rows: (M,) row of that image in
    `similarity`. semantic_vectors: (M, k), row j belongs to caption j; None where the loss reads none. images and
    captions: the embeddings; None for networks that only score pairs. memory: set by `CrossBatchMemory` alone. drawn:
    the hardest of the items sampled from the data set, with gradient to both items of a pair, minus infinity where a
    pair is not among them; None unless the loss's spec asks for it (`drawn_negatives`). several: an image may have
    several captions or none although there are as many captions as images.
    """

    similarity: Tensor
    image_ids: Tensor
    caption_image_ids: Tensor
    caption_rows: Tensor
    semantic_vectors: Tensor | None = None
    images: Items | None = None
    captions: Items | None = None
    memory: Memory | None = None
    drawn: Memory | None = None
    several: bool = False

    @property
    def are_pairs(self) -> bool:
        """True if row i and column i are a pair (one image row per caption)."""
        images, captions = self.similarity.shape
        return images == captions and not self.several


@dataclass(frozen=True)
class Selection:
    """The scores that a loss mined its hardest negatives from, without gradient, to count unique hard negatives.

    scores: (N, M) the loss's own score (similarity plus semantic term). negatives: (N, M) bool. active_images: (N,)
    bool, image queries with a positive hinge; active_captions: (M,) likewise; None where the loss has no hinge.
    is_proxy: the loss itself does not select one hardest negative per query (softmax, top-f above f = 0).
    """

    scores: Tensor
    negatives: Tensor
    active_images: Tensor | None
    active_captions: Tensor | None
    is_proxy: bool


@dataclass(frozen=True)
class LossOutput:
    """value: scalar with gradient, float32 or wider. parts: detached scalars to log. selection: see `Selection`."""

    value: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    selection: Selection | None = None


@dataclass(frozen=True)
class LossContext:
    """What a loss needs to create its parameters. embedding_size: D of the network. concepts: images of the train
    split, the range of `image_ids`. sparse_gradients: whether large tables may get sparse ones, which plain SGD takes
    at its own rate; Adam and the clipping of gradients do not."""

    embedding_size: int
    concepts: int
    sparse_gradients: bool = True


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that a loss learns. sgd_rate: None trains them with the network's optimizer at its rate; a number
    trains them by plain SGD at this rate, which falls by the same factors as the network's."""

    parameters: list[nn.Parameter]
    sgd_rate: float | None


class Counters(nn.Module):
    """A module whose int64 buffers are read from the device only once after loading: reading them waits for a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[str, int] = {}
        self.register_load_state_dict_post_hook(_forget)  # type: ignore[no-untyped-call]

    def counter(self, name: str) -> int:
        """The value of an int64 buffer."""
        if name not in self._known:
            self._known[name] = int(getattr(self, name))
        return self._known[name]

    def set_counter(self, name: str, value: int) -> None:
        """Set an int64 buffer."""
        getattr(self, name).fill_(value)
        self._known[name] = value


def _forget(counters: Counters, _: object) -> None:
    """After a state is loaded. A function with a name: modules with others cannot be saved or sent to a process."""
    counters._known.clear()


class Loss(Counters, ABC):
    """A loss with its schedule. Every mutable number is a buffer or a parameter, so `state_dict()` is the complete
    state.

    The train loop calls `start_epoch` with the 0-based epoch before its first batch, `before_step` between the backward
    pass and the optimizer, and `after_step` after every optimizer step.

    spec: the hyperparameters; a loss whose spec has `warmup_epochs` warms up that long, others as long as they pass.
    """

    epoch: Tensor
    spec: Any
    needs_context: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        require_callable_overrides(cls, Loss)

    def __init__(self, spec: LossSpec | None = None, *, warmup_epochs: int | None = None) -> None:
        super().__init__()
        self.spec = spec
        self.warmup_epochs: int = getattr(spec, "warmup_epochs", 0) if warmup_epochs is None else warmup_epochs
        self.register_buffer("epoch", torch.zeros((), dtype=torch.int64))
        self._is_checked = False

    def __call__(self, inputs: LossInputs) -> LossOutput:
        """`forward`, with a value of NaN if the similarity has a NaN or an infinity anywhere.

        This includes entries that the loss does not read: a diverged network must not continue with a finite loss. The
        shapes of the first output are checked. No autocast reaches a loss.
        """
        with torch.autocast(inputs.similarity.device.type, enabled=False):
            output: LossOutput = super().__call__(inputs)
        if not self._is_checked:
            require_sound(output, inputs, name=self._name, forward=type(self).forward)
            self._is_checked = True
        return replace(output, value=output.value + 0 * inputs.similarity.detach().float().sum())

    @property
    def _name(self) -> str:
        """The name of the loss in study files, for messages."""
        return str(getattr(self.spec, "name", type(self).__name__))

    def start_epoch(self, epoch: int) -> None:
        """Set the epoch that begins (0-based)."""
        self.set_counter("epoch", epoch)

    def before_step(self) -> None:
        """Change the gradients of the loss's own parameters before the optimizer step. Most losses do nothing."""

    def after_step(self) -> None:
        """Advance schedules by one training step. Losses without a schedule do nothing."""

    def parameter_groups(self) -> list[ParameterGroup]:
        """The parameters that the loss learns, and how. By default all its parameters, with the network's optimizer."""
        learned = [parameter for parameter in self.parameters() if parameter.requires_grad]
        return [ParameterGroup(learned, None)] if learned else []

    def shared_parameters(self) -> dict[str, Tensor]:
        """Learned values of this loss, by name, that a network may use in its similarities; empty for most losses."""
        return {}

    def take_network_parameters(self, held: Mapping[str, Tensor]) -> None:
        """Start from values stored with the network's weights, before the first step; most losses use none."""

    def continue_from(self, previous: Loss) -> None:
        """Take over the learned state of the loss of the phase before: by default everything of equal name and
        shape."""
        mine, theirs = self.state_dict(), previous.state_dict()
        self.load_state_dict(
            {name: theirs[name] if name in theirs and theirs[name].shape == mine[name].shape else mine[name]
             for name in mine}
        )

    @property
    def is_warming_up(self) -> bool:
        """True in the first `warmup_epochs` epochs."""
        return self.warmup_epochs > 0 and self.counter("epoch") < self.warmup_epochs

    @abstractmethod
    def forward(self, inputs: LossInputs) -> LossOutput:
        """The loss of one batch. ConfigError for a batch of a shape that the loss does not define."""


class LossOfLosses(Loss):
    """A loss that computes others; the calls of the train loop reach each of them."""

    @abstractmethod
    def inner_losses(self) -> list[Loss]:
        """The others."""

    def start_epoch(self, epoch: int) -> None:
        super().start_epoch(epoch)
        for loss in self.inner_losses():
            loss.start_epoch(epoch)

    def before_step(self) -> None:
        for loss in self.inner_losses():
            loss.before_step()

    def after_step(self) -> None:
        for loss in self.inner_losses():
            loss.after_step()

    def parameter_groups(self) -> list[ParameterGroup]:
        return [group for loss in self.inner_losses() for group in loss.parameter_groups()]

    def shared_parameters(self) -> dict[str, Tensor]:
        return {name: value for loss in self.inner_losses() for name, value in loss.shared_parameters().items()}

    def take_network_parameters(self, held: Mapping[str, Tensor]) -> None:
        for loss in self.inner_losses():
            loss.take_network_parameters(held)


def require_pairs(inputs: LossInputs, loss: str) -> None:
    """Refuse a batch in which images have several captions. Raises ConfigError."""
    if not inputs.are_pairs:
        images, captions = inputs.similarity.shape
        fitting = ", ".join(sorted(name for name, spec in LOSSES.items() if spec.several_positives))
        raise ConfigError(
            "VSE-L001", "loss {loss}: got {images} images x {captions} captions, need one caption per image; set "
            "training.batch_unit to pairs (in your own training loop repeat the images), or use {fitting}", loss=loss,
            images=images, captions=captions, fitting=fitting,
        )


def require_semantics(inputs: LossInputs | Memory, loss: str, dtype: torch.dtype) -> Tensor:
    """(M, k) semantic vectors, at least as wide as `dtype`. Raises ConfigError if there are none."""
    vectors = inputs.semantic_vectors
    if vectors is None:
        raise ConfigError(
            "VSE-L002", "loss {loss}: got a batch without semantic vectors, need one per caption; in your own training "
            "loop give semantic_vectors=, in code of vsetune read the training split with data.semantics or "
            "data.encoder", loss=loss,
        )
    return vectors.to(torch.promote_types(dtype, vectors.dtype))


def require_items(inputs: LossInputs, loss: str) -> tuple[Items, Items]:
    """Images and captions in the joint space. Raises ConfigError for a network that only scores pairs."""
    if inputs.images is None or inputs.captions is None:
        raise ConfigError(
            "VSE-L003", "loss {loss}: got a batch without embeddings, need those of images and captions; use a network "
            "that embeds both", loss=loss,
        )
    return inputs.images, inputs.captions


def require_embeddings(inputs: LossInputs, loss: str, size: int) -> tuple[Tensor, Tensor]:
    """(N, size) and (M, size): one embedding of each image and caption. Raises ConfigError for other shapes."""
    images, captions = (items.vectors for items in require_items(inputs, loss))
    for vectors in (images, captions):
        if vectors.dim() != 2 or vectors.shape[1] != size:
            raise ConfigError(
                "VSE-L004", "loss {loss}: got embeddings of shape {shape}, need one of size {size} per item; use a "
                "network of kind embedding", loss=loss, shape=tuple(vectors.shape), size=size,
            )
    return images, captions


def require_sound(output: object, inputs: LossInputs, *, name: str, forward: Callable[..., object]) -> None:
    """ConfigError, which starts with file and line, unless this is a valid output. name: of the loss. Reads no
    value."""
    code = forward.__code__
    for problem in _problems(output, inputs):
        raise ConfigError(problem.at(f"{code.co_filename}:{code.co_firstlineno}: loss {name}"))


def _problems(output: object, inputs: LossInputs) -> Iterator[Problem]:
    if not isinstance(output, LossOutput):
        yield Problem.of(
            "VSE-L020", "forward returned a {got}, need `LossOutput(value=...)`", got=type(output).__name__
        )
        return
    value = output.value
    if not isinstance(value, Tensor):
        yield Problem.of(
            "VSE-L007", "{what} is of type {got}, need {need}", what="value", got=type(value).__name__,
            need="a tensor of one number, computed from inputs.similarity",
        )
        return
    if value.dim() != 0:
        need = "one number; reduce it with `.mean()` or `.sum()`"
        yield _OUTPUT_SHAPE(what="value", got=tuple(value.shape), need=need)
    elif value.dtype not in (torch.float32, torch.float64):
        yield Problem.of(
            "VSE-L009", "value is of {got}, need float32 or wider; begin with `at_least_float32(inputs.similarity)`",
            got=value.dtype,
        )
    elif torch.is_grad_enabled() and inputs.similarity.requires_grad and not value.requires_grad:
        yield Problem.of(
            "VSE-L010", "value has no gradient; compute it from inputs.similarity or the embeddings, without "
            "`.detach()`",
        )
    for key, part in output.parts.items():
        what, need = f"part {key}", "a tensor of one number to log"
        if not isinstance(part, Tensor):
            yield Problem.of(
                "VSE-L007", "{what} is of type {got}, need {need}", what=what, got=type(part).__name__, need=need
            )
        elif part.dim() != 0:
            yield _OUTPUT_SHAPE(what=what, got=tuple(part.shape), need=need)
        elif part.requires_grad:
            yield Problem.of(
                "VSE-L011", "part {part} has a gradient, which holds the whole batch in memory; add `.detach()`",
                part=key,
            )
    selection, need = output.selection, f"{tuple(inputs.similarity.shape)} (images, captions)"
    for key in ("scores", "negatives") if selection is not None else ():
        shape = tuple(getattr(selection, key).shape)
        if shape != inputs.similarity.shape:
            yield _OUTPUT_SHAPE(what=f"selection.{key}", got=shape, need=need)
