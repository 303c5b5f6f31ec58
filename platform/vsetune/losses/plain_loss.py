"""Every loss as an ordinary torch module for other people's training loops: embeddings or scores in, a number out."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from vsetune.config.component_specs import LossSpec
from vsetune.errors import ConfigError
from vsetune.losses.loss_base import Items, LossContext, LossInputs, LossOutput, Selection
from vsetune.losses.loss_building import build_loss
from vsetune.losses.parts.loss_devices import beside
from vsetune.losses.parts.products import dot_products
from vsetune.metrics.arguments import Arguments
from vsetune.metrics.vectors import unit_length


class PlainLoss(nn.Module):
    """A loss of vsetune outside of it, the base of the classes in `vsetune.losses`.

    spec: its settings, with formula (`spec.equation`) and paper (`spec.source`). Losses with a schedule (warm-up, a
    growing margin, a memory) advance it where the loop calls `start_epoch` before and `after_step` after its steps;
    other losses need neither. Learned parameters, such as a temperature, are in `parameters()`.

    Example:

        loss = vsetune.losses.LMH(margin=0.2)
        value = loss(images, captions, image_ids=ids)    # (n, d), (n, d), (n,) int64
        value.backward()
    """

    def __init__(self, spec: LossSpec, *, embedding_size: int | None = None, images: int | None = None) -> None:
        """embedding_size: d. images: number of training images, the range of `image_ids`. Both only for losses that
        learn something of that size, and for memories. ConfigError where they are missing."""
        super().__init__()
        self.spec = spec
        self.context = None
        if embedding_size is not None and images is not None:
            self.context = LossContext(embedding_size, images, sparse_gradients=False)
        self.loss = build_loss(spec, self.context)

    def forward(
        self, images: Tensor | None = None, captions: Tensor | None = None, *, scores: Tensor | None = None,
        image_ids: Tensor | None = None, caption_rows: Tensor | None = None, semantic_vectors: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch, a float32 scalar with gradient (float64 for such a batch); larger is worse.

        images: (n, d) embeddings, or (n, k, d) with several per item, scaled to unit length here and compared by cosine
        (the closest of the k x k pairs). A single matrix is read as `scores`. captions: (m, d), likewise. scores:
        (n, m), larger is closer, in place of the cosines. image_ids: (n,) int64, the same number for rows of the same
        image, whose captions most losses do not count as wrong; by default all differ. caption_rows: (m,) int64, the
        row of each caption's image, in any order; by default m is n and row i belongs to caption i. semantic_vectors:
        (m, k) of the captions, for losses that read them (LSEH). Half precision and autocast change no digit: all is
        computed in float32. Numbers on the CPU are checked without waiting for a GPU.

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
        inputs, order = self._inputs(images, captions, **batch)
        output: LossOutput = self.loss(inputs)
        if order is None or output.selection is None:
            return output
        return replace(output, selection=_of_rows(output.selection, order.argsort()))

    def start_epoch(self, epoch: int) -> None:
        """Set the epoch that begins, 0-based."""
        self.loss.start_epoch(epoch)

    def before_step(self) -> None:
        """To be called between `backward` and the optimizer's step, for losses that change their own gradients. With a
        GradScaler `scaler.unscale_(optimizer)` comes before."""
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
    ) -> tuple[LossInputs, Tensor | None]:
        """The batch; and the order in which it has the images, where they are pairs whose captions come in another."""
        given = Arguments(f"loss {self.spec.name}", ConfigError)
        given.tensors(
            images=images, captions=captions, scores=scores, image_ids=image_ids, caption_rows=caption_rows,
            semantic_vectors=semantic_vectors,
        )
        if captions is None and scores is None:
            images, scores = None, images
        given.floats(images=images, captions=captions, scores=scores)
        images, captions, scores = self._compared(given, images, captions, scores)
        rows, columns = scores.shape
        if semantic_vectors is not None:
            fits = semantic_vectors.dim() == 2 and len(semantic_vectors) == columns
            given.shape("semantic_vectors", semantic_vectors, f"({columns}, k), one of each caption", fits=fits)
            semantic_vectors = beside(semantic_vectors, scores)
        if image_ids is None:
            image_ids = torch.arange(rows)
        below = None if self.context is None else self.context.concepts
        image_ids = beside(given.integers("image_ids", image_ids, count=rows, below=below), scores)
        if caption_rows is None:
            if rows != columns:
                raise ConfigError(
                    "VSE-L023", "loss {loss}: got {images} images x {captions} captions, need `caption_rows=`, the row "
                    "of each caption's image (one tensor alone is read as a matrix of scores: for embeddings give "
                    "images and captions)", loss=self.spec.name, images=rows, captions=columns,
                )
            caption_rows = torch.arange(columns)
        caption_rows = given.integers("caption_rows", caption_rows, count=columns, below=rows)
        in_order, order = torch.arange(columns, device=caption_rows.device), None
        several = rows == columns and not torch.equal(caption_rows.sort().values, in_order)
        if rows == columns and not several and not torch.equal(caption_rows, in_order):
            order, caption_rows = beside(caption_rows, scores), in_order
            scores, image_ids = scores[order], image_ids[order]
            images = None if images is None else images[order]
        caption_rows = beside(caption_rows, scores)
        return LossInputs(
            scores, image_ids, image_ids[caption_rows], caption_rows, semantic_vectors,
            None if images is None else Items(images), None if captions is None else Items(captions), several=several,
        ), order

    def _compared(
        self, given: Arguments, images: Tensor | None, captions: Tensor | None, scores: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, Tensor]:
        """The embeddings at unit length, if there are any, and their scores."""
        name = self.spec.name
        if images is None and captions is None and scores is not None:
            given.shape("scores", scores, "(images, captions), at least one of each", fits=scores.dim() == 2)
            return None, None, scores
        if images is None or captions is None:
            sides = {"images": images, "captions": captions, "scores": scores}
            got = " and ".join(what for what, value in sides.items() if value is not None) or "nothing"
            raise ConfigError(
                "VSE-L021", "loss {loss}: got {got}, need embeddings of both images and captions, or scores (images, "
                "captions) alone", loss=name, got=got,
            )
        several = "several_embeddings" in self.spec.needed_kinds
        need = "(n, d), or (n, k, d) with several of each" if several else "(n, d), one of each"
        given.shape("images", images, need, fits=images.dim() in ((2, 3) if several else (2,)))
        size = images.shape[-1] if self.context is None else self.context.embedding_size
        for what, side in (("images", images), ("captions", captions)):
            fits = side.dim() == images.dim() and side.shape[-1] == size
            given.shape(what, side, f"{need}, with d = {size}", fits=fits)
        images, captions = unit_length(images), unit_length(captions)
        if scores is None:
            if "cosine" not in self.spec.needed_scores:
                raise ConfigError(
                    "VSE-L022", "loss {loss}: got embeddings, which are compared by cosine, need `scores=` of kind "
                    "{scores}", loss=name, scores=", ".join(sorted(self.spec.scores)),
                )
            return images, captions, _cosines(images, captions)
        both = len(images), len(captions)
        given.shape("scores", scores, f"{both}, as the embeddings", fits=scores.shape == both)
        return images, captions, scores


def _cosines(images: Tensor, captions: Tensor) -> Tensor:
    """(n, m); of several embeddings per item those of the closest pair."""
    if images.dim() == 2:
        return dot_products(images, captions)
    pairs = dot_products(images[:, None], captions[None])
    return pairs.amax(dim=(2, 3))


def _of_rows(selection: Selection, rows: Tensor) -> Selection:
    """The same selection with its images in another order."""
    active = selection.active_images
    return replace(
        selection, scores=selection.scores[rows], negatives=selection.negatives[rows],
        active_images=None if active is None else active[rows],
    )
