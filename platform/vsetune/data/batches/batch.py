"""The input of one training or evaluation step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.parts.network_devices import sent


@dataclass(frozen=True)
class Batch:
    """Images with captions. Images (rows) and captions are counted apart; `caption_rows` joins them.

    With batch_unit `pairs` there is one image row per caption (caption_rows == arange), the same image perhaps
    several times; with `images` each image stands once, followed by all its captions.

    A network that reads photographs gets pixels instead of features and boxes, which are not even read: a batch with
    pixels has one region of width 0 per image. Where the network asks for it (`PixelInput.swaps_sides`), all captions
    of a mirrored image have `left` and `right` exchanged: the words, before they become ids, whichever of them the
    vocabulary knows. Semantic vectors, parses and phrases stay those of the caption as stored.

    images: features are float16 as stored when the reader makes the batch, float32 after `to`: the consumer widens them
        faster, and half as much travels to a GPU. pixels stay uint8.
    captions: what the network did not ask for, or the data set does not have, is None; siblings also in evaluation.
    image_ids:      (images,) int64, index of the image in its split.
    caption_rows:   (captions,) int64, row of `images` the caption belongs to.
    caption_ids:    (captions,) int64, index of the caption in its split, its row in the semantic vectors.
    semantic_vectors: (captions, k) float32, or None where the loss needs none.
    """

    images: ImageInputs
    captions: CaptionInputs
    image_ids: Tensor
    caption_rows: Tensor
    caption_ids: Tensor
    semantic_vectors: Tensor | None = None

    @property
    def pairs(self) -> int:
        """Image-caption pairs in the batch: one per caption."""
        return len(self.caption_ids)

    def to(self, device: str | torch.device) -> Batch:
        """The batch on a device, features as float32. Pinned memory lets a copy to a GPU run beside the CPU."""
        images, vectors = self.images.to(device), self.semantic_vectors
        return Batch(
            images=replace(images, features=images.features.float()),
            captions=self.captions.to(device),
            image_ids=sent(self.image_ids, device),
            caption_rows=sent(self.caption_rows, device),
            caption_ids=sent(self.caption_ids, device),
            semantic_vectors=None if vectors is None else sent(vectors, device),
        )
