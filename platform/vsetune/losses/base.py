"""What goes into a loss, what comes out, and the class all losses derive from.

Rows of a similarity matrix are images (N), columns are captions (M). With `batch_unit: pairs` N = M and pair i stands
on the diagonal; with `batch_unit: images` each image meets all its captions and N <= M.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from vsetune.errors import ConfigError


@dataclass(frozen=True)
class LossInputs:
    """One batch as a loss sees it.

    similarity: (N, M), larger is closer, with gradient. image_ids: (N,) image of each row. caption_image_ids: (M,)
    image each caption belongs to. caption_rows: (M,) row of that image in `similarity`. semantic_vectors: (M, k), row j
    belongs to caption j; only LSEH needs them.
    """

    similarity: Tensor
    image_ids: Tensor
    caption_image_ids: Tensor
    caption_rows: Tensor
    semantic_vectors: Tensor | None = None


@dataclass(frozen=True)
class Selection:
    """What a loss mined its hardest negatives from, without gradient, for the count of unique hard negatives.

    scores: (N, M) the loss's own score (similarity plus semantic term). negatives: (N, M) bool. active_images: (N,)
    bool, image queries with a positive hinge; active_captions: (M,) likewise; None where the loss has no hinge.
    is_proxy: the loss itself does not pick one hardest negative per query (softmax, top-f above f = 0).
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


class Loss(nn.Module, ABC):
    """A loss with its schedule. Every mutable number is a buffer or a parameter, so `state_dict()` is the whole state.

    The train loop calls `start_epoch` with the 0-based epoch before its first batch, and `after_step` after every
    optimizer step.
    """

    epoch: Tensor

    def __init__(self, *, warmup_epochs: int) -> None:
        super().__init__()
        self.warmup_epochs = warmup_epochs
        self.register_buffer("epoch", torch.zeros((), dtype=torch.int64))

    def start_epoch(self, epoch: int) -> None:
        """Tell the loss which epoch begins (0-based)."""
        self.epoch.fill_(epoch)

    def after_step(self) -> None:
        """Move schedules one training step on. Losses without a schedule do nothing."""

    @property
    def is_warming_up(self) -> bool:
        """True in the first `warmup_epochs` epochs. Reads the epoch from the device only if there is a warm-up."""
        return self.warmup_epochs > 0 and int(self.epoch) < self.warmup_epochs

    @abstractmethod
    def forward(self, inputs: LossInputs) -> LossOutput:
        """The loss of one batch. ConfigError for a batch of a shape that the loss does not define."""


def at_least_float32(values: Tensor) -> Tensor:
    """Half precision becomes float32; float32 and float64 stay as they are."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def require_pairs(inputs: LossInputs, loss: str) -> None:
    """Refuse a batch in which images have several captions. Raises ConfigError."""
    images, captions = inputs.similarity.shape
    if images != captions:
        raise ConfigError(
            f"loss {loss}: got {images} images x {captions} captions, need one caption per row; "
            f"set training.batch_unit to pairs, or use top_f or info_nce"
        )
