"""One vector per image: of a photograph by a CNN, or the mean of its stored regions; several crops averaged."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from vsetune.errors import DataError
from vsetune.networks.inputs import ImageInputs
from vsetune.networks.network_base import region_mask, unit_length
from vsetune.networks.parts.backbone import Backbone
from vsetune.networks.parts.network_fields import BackboneSpec
from vsetune.networks.parts.polysemous import mean_of_items


class ImageVectors(nn.Module):
    """v = n(W n(x) + b): x the vector of a CNN, or the mean of the regions where there is no CNN.

    width: of a stored region. Several crops of a photograph: the mean of their v, normalised again.
    """

    def __init__(self, backbone: BackboneSpec | None, *, width: int, embedding_size: int) -> None:
        super().__init__()
        self.backbone = Backbone(backbone, gives="vector") if backbone is not None else None
        self.image_map = nn.Linear(self.backbone.width if self.backbone is not None else width, embedding_size)

    def forward(self, images: ImageInputs) -> Tensor:
        """(n, D), unit length."""
        if self.backbone is not None:
            backbone = self.backbone
            return mean_of_crops(lambda pixels: self._embed(backbone.vectors(pixels)), pixels_of(images))
        mask = region_mask(images.counts, images.features.shape[1])
        return self._embed(mean_of_items(images.features, mask))

    def _embed(self, vectors: Tensor) -> Tensor:
        return unit_length(self.image_map(unit_length(vectors)))


def mean_of_crops(embed: Callable[[Tensor], Tensor], pixels: Tensor) -> Tensor:
    """(n, D) unit length: embeddings of the crops, one crop of all images at a time, averaged and normalised again.

    embed: (n, 3, S, S) to (n, D) of unit length. pixels: (n, crops, 3, S, S).
    """
    crops = pixels.unbind(dim=1)
    embedded = embed(crops[0])
    if len(crops) == 1:
        return embedded
    for crop in crops[1:]:
        embedded = embedded + embed(crop)
    return unit_length(embedded / len(crops))


def pixels_of(images: ImageInputs) -> Tensor:
    """(n, crops, 3, S, S) uint8. DataError for images without pixels."""
    if images.pixels is None:
        raise DataError(
            "VSE-N001", "network.image_input: pixels needs photographs, the batch has none; ingest the data set with "
            "its images stored, or use features.",
        )
    return images.pixels
