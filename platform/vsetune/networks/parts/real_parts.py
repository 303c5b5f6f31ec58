"""Which parts of padded items are real, known on the host before a device computes anything.

Rows are selected by position and not by a mask: their number follows from the lengths, so no code waits for a GPU.
Letters of shapes: n items, P parts of the longest, T real parts of all items together.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vsetune.networks.parts.network_devices import beside


@dataclass(frozen=True)
class RealParts:
    """mask: (n, P) bool, True for real parts, and places: (T,) int64 of them among all n * P; both on the device."""

    mask: Tensor
    places: Tensor

    @classmethod
    def of_mask(cls, mask: Tensor, near: Tensor) -> RealParts:
        """mask: (n, P) bool on the host. near: a tensor of the device."""
        places = mask.flatten().nonzero().squeeze(1)
        return cls(beside(mask, near), beside(places, near))

    @classmethod
    def of_lengths(cls, lengths: Tensor, parts: int, near: Tensor) -> RealParts:
        """lengths: (n,) on the host, number of real parts among the P parts of each item."""
        return cls.of_mask(torch.arange(parts) < lengths[:, None], near)

    def rows(self, values: Tensor) -> Tensor:
        """(T, ...): the real ones of (n, P, ...), item after item."""
        return values.flatten(0, 1).index_select(0, self.places)

    def placed(self, rows: Tensor) -> Tensor:
        """(n, P, ...): rows (T, ...) back where they were taken from, zero elsewhere."""
        empty = rows.new_zeros(self.mask.numel(), *rows.shape[1:])
        return empty.index_copy(0, self.places, rows).view(*self.mask.shape, *rows.shape[1:])
