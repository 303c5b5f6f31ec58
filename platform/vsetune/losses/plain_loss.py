"""Every loss as an ordinary torch module for other people's training loops: embeddings or scores in, a number out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from vsetune.config.component_specs import LOSSES, LossSpec
from vsetune.config.spec.loading import parse_spec
from vsetune.errors import ConfigError
from vsetune.losses import messages
from vsetune.losses.loss_base import Items, LossContext, LossInputs, LossOutput
from vsetune.losses.loss_building import build_loss
from vsetune.losses.parts.products import dot_products


class PlainLoss(nn.Module):
    """A loss of vsetune outside of it, made by `vsetune.losses.NAME(...)`.

    spec: its settings, with formula (`spec.equation`) and paper (`spec.source`). Losses with a schedule (warm-up, a
    growing margin, a memory) advance it where the loop calls `start_epoch` before and `after_step` after its steps;
    other losses need neither. Learned parameters, such as a temperature, are in `parameters()`.

    Example:
        loss = vsetune.losses.lmh(margin=0.2)
        value = loss(images, captions, image_ids=ids)    # (n, d), (n, d), (n,) int64
        value.backward()
    """

    def __init__(self, spec: LossSpec, *, embedding_size: int | None = None, images: int | None = None) -> None:
        """embedding_size: d. images: number of training images, the range of `image_ids`. Both only for losses that
        learn something of that size, and for memories. ConfigError where they are missing."""
        super().__init__()
        self.spec = spec
        context = None if embedding_size is None or images is None else LossContext(embedding_size, images)
        self.loss = build_loss(spec, context)

    def forward(
        self, images: Tensor | None = None, captions: Tensor | None = None, *, scores: Tensor | None = None,
        image_ids: Tensor | None = None, caption_rows: Tensor | None = None, semantic_vectors: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch, a float32 scalar with gradient (float64 for such a batch); larger is worse.

        images: (n, d) embeddings, or (n, k, d) with several per item, scaled to unit length here and compared by cosine
        (the closest of the k x k pairs). A single matrix is read as `scores`. captions: (m, d), likewise. scores:
        (n, m), larger is closer, in place of the cosines. image_ids: (n,) int64, the same number for rows of the same
        image, whose captions most losses do not count as wrong; by default all differ. caption_rows: (m,) int64, the
        row of each caption's image; by default m is n and row i belongs to caption i. semantic_vectors: (m, k) of the
        captions, for losses that read them (LSEH).

        ConfigError: the batch does not have the form that the loss needs.
        """
        return self.output(
            images, captions, scores=scores, image_ids=image_ids, caption_rows=caption_rows,
            semantic_vectors=semantic_vectors,
        ).value

    def output(
        self, images: Tensor | None = None, captions: Tensor | None = None, **batch: Tensor | None
    ) -> LossOutput:
        """As a call, with everything that the trainer logs: `value`, `parts` by name, `selection` of hard negatives."""
        output: LossOutput = self.loss(self._inputs(images, captions, **batch))
        return output

    def start_epoch(self, epoch: int) -> None:
        """Set the epoch that begins, 0-based."""
        self.loss.start_epoch(epoch)

    def before_step(self) -> None:
        """To be called between `backward` and the optimizer's step, for losses that change their own gradients."""
        self.loss.before_step()

    def after_step(self) -> None:
        """Advance schedules and memories by one training step."""
        self.loss.after_step()

    def extra_repr(self) -> str:
        """Its name and settings."""
        return ", ".join(f"{name}={value!r}" for name, value in self.spec.to_plain().items())

    def _inputs(
        self, images: Tensor | None, captions: Tensor | None, *, scores: Tensor | None = None,
        image_ids: Tensor | None = None, caption_rows: Tensor | None = None, semantic_vectors: Tensor | None = None,
    ) -> LossInputs:
        name = self.spec.name
        if images is not None and captions is None:
            images, scores = None, images if scores is None else scores
        if images is not None and captions is not None:
            images, captions = normalize(images, dim=-1), normalize(captions, dim=-1)
            if scores is None:
                if "cosine" not in self.spec.needed_scores:
                    raise ConfigError(messages.SCORES_NEEDED(loss=name, scores=", ".join(sorted(self.spec.scores))))
                scores = _cosines(images, captions)
        if scores is None or scores.dim() != 2:
            got = "nothing" if scores is None else tuple(scores.shape)
            raise ConfigError(messages.NO_BATCH(loss=name, got=got))
        rows, columns = scores.shape
        if caption_rows is None and rows != columns:
            raise ConfigError(messages.ROWS_NEEDED(loss=name, images=rows, captions=columns))
        if caption_rows is None:
            caption_rows = torch.arange(columns, device=scores.device)
        if image_ids is None:
            image_ids = torch.arange(rows, device=scores.device)
        for what, ids, size in (("image_ids", image_ids, rows), ("caption_rows", caption_rows, columns)):
            if ids.shape != (size,):
                raise ConfigError(messages.IDS_SHAPE(loss=name, what=what, got=tuple(ids.shape), need=size))
        return LossInputs(
            scores, image_ids, image_ids[caption_rows], caption_rows, semantic_vectors,
            None if images is None else Items(images), None if captions is None else Items(captions),
        )


def plain_loss(
    name: str, *, embedding_size: int | None = None, images: int | None = None, **settings: Any
) -> PlainLoss:
    """The loss of this name in study files. settings: its hyperparameters; the others have their defaults.

    embedding_size, images: see `PlainLoss`. ConfigError lists every wrong setting.
    """
    spec = parse_spec({"name": name, **settings}, LOSSES[name], where=f"vsetune.losses.{name}")
    return PlainLoss(spec, embedding_size=embedding_size, images=images)


def _cosines(images: Tensor, captions: Tensor) -> Tensor:
    """(n, m); of several embeddings per item those of the closest pair."""
    if images.dim() == 2:
        return dot_products(images, captions)
    pairs = dot_products(images[:, None], captions[None])
    return pairs.amax(dim=(2, 3))
