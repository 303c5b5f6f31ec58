"""What networks read: the images and the captions of a batch."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from torch import Tensor


@dataclass(frozen=True)
class ImageInputs:
    """features: (n, R, width) float, zero rows where an image has fewer regions. counts: (n,) int64, real ones, from 1.

    boxes: (n, R, 4) x1, y1, x2, y2 of the regions, 0 to 1 of the image; None where the data set has none (the cells of
    a grid then follow from R). pixels: (n, crops, 3, S, S) uint8 RGB, None unless the network's spec asks for them; one
    crop but for evaluation by several.
    """

    features: Tensor
    counts: Tensor
    boxes: Tensor | None = None
    pixels: Tensor | None = None

    def __getitem__(self, rows: slice | Tensor) -> ImageInputs:
        """Some of the images, in the order given."""
        return replace(self, **{name: value[rows] for name, value in _present(self).items()})


@dataclass(frozen=True)
class CaptionInputs:
    """tokens: (m, L) int64 ids of words or word pieces, start and end included, 0 where padded. lengths: (m,) int64,
    ids that are real, from 1.

    dependencies: (m, L, L) bool, True where the parse joins two words (both orders, no diagonal), over token positions;
    None where the data set has no parses.
    phrases: (m, Q, L) bool, True where the id at a position of tokens belongs to the phrase, padded False; None outside
    training, and where the data set has none.
    siblings: (m, S, I) int64 ids of the other captions of each one's image, as `tokens`, 0 where padded; None outside
    training, and unless the network's spec asks for them.
    """

    tokens: Tensor
    lengths: Tensor
    dependencies: Tensor | None = None
    phrases: Tensor | None = None
    siblings: Tensor | None = None

    def __getitem__(self, rows: slice | Tensor) -> CaptionInputs:
        """Some of the captions, in the order given, padded as they are."""
        return replace(self, **{name: value[rows] for name, value in _present(self).items()})


def _present(inputs: ImageInputs | CaptionInputs) -> dict[str, Tensor]:
    found = {field.name: getattr(inputs, field.name) for field in fields(inputs)}
    return {name: value for name, value in found.items() if value is not None}
