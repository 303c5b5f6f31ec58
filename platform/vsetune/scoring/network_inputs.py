"""Conversion of a batch of the data to the inputs of networks."""

from __future__ import annotations

from vsetune.data.batches.batch import Batch
from vsetune.networks.inputs import CaptionInputs, ImageInputs


def image_inputs(batch: Batch) -> ImageInputs:
    """The images of a batch, with boxes where it has them."""
    return ImageInputs(
        batch.image_features, batch.region_counts, batch.boxes, batch.pixels, host_counts=batch.host_region_counts
    )


def caption_inputs(batch: Batch) -> CaptionInputs:
    """The captions of a batch; with parses, phrases and the other captions of their images where it has them."""
    return CaptionInputs(
        batch.captions, batch.caption_lengths, batch.dependencies, phrases=batch.phrases, siblings=batch.siblings,
        host_lengths=batch.host_caption_lengths,
    )
