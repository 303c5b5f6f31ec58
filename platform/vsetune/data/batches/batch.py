"""The input of one training or evaluation step."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Images with captions. Images (rows) and captions are counted apart; `caption_rows` joins them.

    With batch_unit `pairs` there is one image row per caption (caption_rows == arange), the same image perhaps
    several times; with `images` each image stands once, followed by all its captions.

    A network that reads photographs gets pixels instead of features and boxes, which are not even read: a batch with
    pixels has one region of width 0 per image. Where the network asks for it (`PixelInput.swaps_sides`), all captions
    of a mirrored image have `left` and `right` exchanged: the words, before they become ids, whichever of them the
    vocabulary knows. Semantic vectors, parses and phrases stay those of the caption as stored.

    image_features: (images, regions, width), zero rows where an image has fewer regions. float16 as stored when the
        reader makes the batch, float32 after `to`: the consumer widens them faster, and half as much travels to a GPU.
    region_counts:  (images,) int64, regions that are real.
    image_ids:      (images,) int64, index of the image in its split.
    captions:       (captions, words) int64 ids of words, or of word pieces where the network asked for them; start and
        end included, 0 where padded.
    caption_lengths: (captions,) int64, ids that are real.
    caption_rows:   (captions,) int64, row of `image_features` the caption belongs to.
    caption_ids:    (captions,) int64, index of the caption in its split, its row in the semantic vectors.
    semantic_vectors: (captions, k) float32, or None where the loss needs none.
    boxes:          (images, regions, 4) float32 x1, y1, x2, y2, 0 to 1 of the image, zero rows where an image has fewer
        regions. None where they were not asked for or the data set has none.
    dependencies:   (captions, words, words) bool over token positions, True where the parse joins two words (both
        orders, no diagonal). None where they were not asked for.
    pixels:         (images, crops, 3, size, size) uint8 RGB, one crop in training; still uint8 after `to`. None where
        they were not asked for.
    phrases:        (captions, phrases, words) bool over token positions, True where the id belongs to the phrase;
        behind the last phrase of a caption all False. None where they were not asked for or the data set has none.
    siblings:       (captions, others, words) int64, ids of the other captions of each one's image, 0 where padded. None
        where they were not asked for, and in evaluation.
    host_region_counts, host_caption_lengths: the numbers of `region_counts` and `caption_lengths` on the CPU, of a
        batch on a GPU: shapes follow from them, and asking the GPU would wait for it. None where those are on the CPU.
    """

    image_features: Tensor
    region_counts: Tensor
    image_ids: Tensor
    captions: Tensor
    caption_lengths: Tensor
    caption_rows: Tensor
    caption_ids: Tensor
    semantic_vectors: Tensor | None
    boxes: Tensor | None = None
    dependencies: Tensor | None = None
    pixels: Tensor | None = None
    phrases: Tensor | None = None
    siblings: Tensor | None = None
    host_region_counts: Tensor | None = None
    host_caption_lengths: Tensor | None = None

    @property
    def pairs(self) -> int:
        """Image-caption pairs in the batch: one per caption."""
        return len(self.caption_ids)

    def to(self, device: str | torch.device) -> Batch:
        """The batch on a device, features as float32. Pinned memory lets a copy to a GPU run beside the CPU."""
        target = torch.device(device)
        moved = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None or field.name.startswith("host_"):
                continue
            if target.type == "cuda" and value.device.type == "cpu":
                value = value.pin_memory()
            moved[field.name] = value.to(target, non_blocking=True)
        moved["image_features"] = moved["image_features"].float()
        for name in ("region_counts", "caption_lengths"):
            kept = getattr(self, name) if self.image_ids.device.type == "cpu" else getattr(self, f"host_{name}")
            moved[f"host_{name}"] = None if target.type == "cpu" else kept
        return replace(self, **moved)
