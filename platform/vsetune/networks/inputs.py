"""Inputs of networks: the images and the captions of a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from vsetune.errors import DataError
from vsetune.networks.parts.network_devices import is_on_cpu, on_host, sent


@dataclass(frozen=True)
class _Inputs:
    """Tensors with a row for each item. `host_x` is a CPU copy of `x` where that is on a GPU."""

    def __getitem__(self, rows: slice | Tensor) -> Self:
        """Some of the items, in the order given, padded as they are. CPU copies are dropped where only a GPU has the
        chosen rows."""
        is_known, chosen = isinstance(rows, slice) or is_on_cpu(rows), dict[str, Any]()
        for name, value in vars(self).items():
            is_kept = value is not None and (is_known or not name.startswith("host_"))
            chosen[name] = value[rows] if is_kept else None
        return replace(self, **chosen)

    def to(self, device: str | torch.device) -> Self:
        """The same items on a device."""
        target, moved = torch.device(device), dict[str, Any]()
        for name, value in vars(self).items():
            if name.startswith("host_"):
                own = getattr(self, name.removeprefix("host_"))
                moved[name] = None if target.type == "cpu" else own if is_on_cpu(own) else value
            elif value is not None:
                moved[name] = sent(value, target)
        return replace(self, **moved)


@dataclass(frozen=True)
class ImageInputs(_Inputs):
    """features: (n, R, width) float, zero rows where an image has fewer regions. counts: (n,) int64, real regions, from
    1.

    boxes: (n, R, 4) x1, y1, x2, y2 of the regions, 0 to 1 of the image; None where the data set has none (the cells of
    a grid then follow from R). pixels: (n, crops, 3, S, S) uint8 RGB, None unless the network's spec asks for them; one
    crop except in an evaluation with several. host_counts: a CPU copy of counts that are on a GPU; None where there is
    no copy.
    """

    features: Tensor
    counts: Tensor
    boxes: Tensor | None = None
    pixels: Tensor | None = None
    host_counts: Tensor | None = None

    @property
    def counts_on_host(self) -> Tensor:
        """counts on the CPU. If they are on a GPU without a CPU copy, this waits for the GPU."""
        return on_host(self.counts, self.host_counts)


@dataclass(frozen=True)
class CaptionInputs(_Inputs):
    """tokens: (m, L) int64 ids of words or word pieces, start and end included, 0 where padded. lengths: (m,) int64,
    number of real ids, from 1.

    dependencies: (m, L, L) bool, True where the parse joins two words (both orders, no diagonal), over token positions;
    None where the data set has no parses.

    phrases: (m, Q, L) bool, True where the id at a position of tokens belongs to the phrase, padded False; None outside
    training, and where the data set has none.

    siblings: (m, S, I) int64 ids of the other captions of each one's image, as `tokens`, 0 where padded; None outside
    training, and unless the network's spec asks for them.

    host_lengths: a CPU copy of lengths that are on a GPU; None where there is no copy.
    """

    tokens: Tensor
    lengths: Tensor
    dependencies: Tensor | None = None
    phrases: Tensor | None = None
    siblings: Tensor | None = None
    host_lengths: Tensor | None = None

    @property
    def lengths_on_host(self) -> Tensor:
        """lengths on the CPU. If they are on a GPU without a CPU copy, this waits for the GPU."""
        return on_host(self.lengths, self.host_lengths)


def square_side(regions: int, *, where: str, instead: str = "") -> int:
    """Cells per side of the square grid that regions without boxes are. DataError when their number is no square.

    where: starts the message. instead: another way out, for the message.
    """
    side = math.isqrt(regions)
    if side**2 != regions:
        raise DataError(
            "VSE-N005", "{where}: got {regions} regions without boxes, need boxes or a square grid of cells, such as 6 "
            "x 6; ingest features with one of them{instead}.", where=where, regions=regions, instead=instead,
        )
    return side
