"""Cross-batch memory (Wang et al. 2020): pairs of earlier batches as further negatives of any hinge loss.

Remembered embeddings drift little between steps, so they replace a larger batch at the cost of two products. Wang et
al. add a loss against the memory to that of the batch; here both form one pool of negatives, so that a loss of the
hardest negative remains one hinge per query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from vsetune.errors import ConfigError
from vsetune.losses.loss_base import (
    Loss,
    LossContext,
    LossInputs,
    LossOfLosses,
    LossOutput,
    Memory,
    require_embeddings,
    require_semantics,
)
from vsetune.losses.parts.products import dot_products


@dataclass(frozen=True)
class MemorySettings:
    """size: number of stored pairs. start_epoch: first epoch (0-based) that fills and uses it. keeps_semantics: whether
    vectors of the captions are stored too."""

    size: int
    start_epoch: int
    keeps_semantics: bool


@dataclass(frozen=True)
class _Pairs:
    """Detached pairs of one batch; images, captions: (M, D), semantic_vectors: (M, k)."""

    images: Tensor
    captions: Tensor
    image_ids: Tensor
    semantic_vectors: Tensor | None


class CrossBatchMemory(LossOfLosses):
    """A hinge loss whose queries also see the last pairs of earlier steps, without gradient to them.

    A training forward sets its pairs aside; `after_step`, when the backward pass no longer needs the old ones, writes
    them over the oldest. The buffers are rings. Position and number of their pairs are plain integers (reading them
    from a GPU would stall every step) and are the extra state of `state_dict`. The width of semantic vectors is known
    from the first batch, or from the loaded state; until then it is 0.
    """

    images: Tensor
    captions: Tensor
    image_ids: Tensor
    semantic_vectors: Tensor

    def __init__(self, inner: Loss, settings: MemorySettings, context: LossContext) -> None:
        super().__init__(warmup_epochs=inner.warmup_epochs)
        self.inner = inner
        self.settings = settings
        self.register_buffer("images", torch.zeros(settings.size, context.embedding_size))
        self.register_buffer("captions", torch.zeros(settings.size, context.embedding_size))
        self.register_buffer("image_ids", torch.zeros(settings.size, dtype=torch.int64))
        self.register_buffer("semantic_vectors", torch.zeros(settings.size, 0))
        self.filled = 0
        self._next = 0
        self._aside: _Pairs | None = None
        self.register_load_state_dict_pre_hook(_adopt_semantic_width)  # type: ignore[no-untyped-call]

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError for a batch without one embedding per item, or without semantic vectors of one size."""
        if not self._has_started:
            return self.inner(inputs)
        images, captions = require_embeddings(inputs, "memory_size", self.images.shape[1])
        if self.settings.keeps_semantics:
            self._require_width(require_semantics(inputs, "memory_size", torch.float32).shape[1])
        memory = self._recall(images, captions) if self.filled else None
        output: LossOutput = self.inner(replace(inputs, memory=memory))
        if self.training:
            self._aside = self._pairs(inputs, images.detach(), captions.detach())
        fill = torch.tensor(self.filled / self.settings.size)
        return replace(output, parts={**output.parts, "memory_fill": fill})

    def inner_losses(self) -> list[Loss]:
        return [self.inner]

    def after_step(self) -> None:
        """Store the pairs of this step."""
        super().after_step()
        if self._aside is not None:
            self._remember(self._aside)
            self._aside = None

    def continue_from(self, previous: Loss) -> None:
        """The inner loss takes over the learned state of the phase before; the memory starts empty."""
        self.inner.continue_from(previous.inner if isinstance(previous, CrossBatchMemory) else previous)

    def get_extra_state(self) -> Tensor:
        return torch.tensor([self.filled, self._next])

    def set_extra_state(self, state: Tensor) -> None:
        self.filled, self._next = state.tolist()
        self._aside = None

    @property
    def _has_started(self) -> bool:
        start = self.settings.start_epoch
        return self.filled > 0 or start == 0 or self.counter("epoch") >= start

    def _require_width(self, width: int) -> None:
        known = self.semantic_vectors.shape[1]
        if known not in (0, width):
            raise ConfigError(
                "VSE-L400", "loss memory_size: got semantic vectors of size {got}, need the {need} of those it "
                "remembers; make a new loss for other vectors", got=width, need=known,
            )

    def _recall(self, images: Tensor, captions: Tensor) -> Memory:
        filled = self.filled
        return Memory(
            caption_similarity=dot_products(images, self.captions[:filled].to(images.dtype)),
            image_similarity=dot_products(self.images[:filled].to(captions.dtype), captions),
            image_ids=self.image_ids[:filled],
            semantic_vectors=self.semantic_vectors[:filled] if self.settings.keeps_semantics else None,
        )

    def _pairs(self, inputs: LossInputs, images: Tensor, captions: Tensor) -> _Pairs:
        if not inputs.are_pairs:
            images = images[inputs.caption_rows]
        stored = self.settings.keeps_semantics
        semantic = require_semantics(inputs, "memory_size", torch.float32) if stored else None
        return _Pairs(images, captions, inputs.caption_image_ids, semantic)

    @torch.no_grad()
    def _remember(self, pairs: _Pairs) -> None:
        if pairs.semantic_vectors is not None and self.semantic_vectors.shape[1] == 0:
            size, width = self.settings.size, pairs.semantic_vectors.shape[1]
            self.semantic_vectors = pairs.semantic_vectors.new_zeros(size, width)
        self._write(self.images, pairs.images)
        self._write(self.captions, pairs.captions)
        self._write(self.image_ids, pairs.image_ids)
        if pairs.semantic_vectors is not None:
            self._write(self.semantic_vectors, pairs.semantic_vectors)
        count = min(len(pairs.image_ids), self.settings.size)
        self._next = (self._next + count) % self.settings.size
        self.filled = min(self.filled + count, self.settings.size)

    def _write(self, ring: Tensor, values: Tensor) -> None:
        newest = values[-len(ring):]
        first = len(ring) - self._next  # places left before the ring starts over
        ring[self._next : self._next + len(newest)] = newest[:first]
        if len(newest) > first:
            ring[: len(newest) - first] = newest[first:]


def _adopt_semantic_width(module: nn.Module, state: Mapping[str, Any], prefix: str, *_: Any) -> None:
    """Before a state is loaded: give the semantic vectors the width and type that the state has."""
    saved = state.get(f"{prefix}semantic_vectors")
    if isinstance(module, CrossBatchMemory) and saved is not None:
        own = module.semantic_vectors
        module.semantic_vectors = torch.zeros(len(own), saved.shape[1], dtype=saved.dtype, device=own.device)
