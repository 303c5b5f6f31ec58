"""The arrays of a bank from which batches are gathered: in the files of this node, or on a device."""

from __future__ import annotations

import math
import mmap
import weakref
from collections import OrderedDict, defaultdict
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from vsetune.data.stored.bank_file import SplitBank

_MOST_KEPT = 4
"""Buffers of each size: one for the batch in training, and some for batches that are referenced a little longer."""


class RecycledBuffers:
    """Memory of batches that is reused as soon as a batch is dropped. `take` returns arrays with arbitrary old content.

    The system hands out new memory zeroed and page by page, which takes six times as long as filling it.
    """

    def __init__(self) -> None:
        self._free: defaultdict[int, list[mmap.mmap]] = defaultdict(list)

    def take(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """An array whose memory is reused once nothing refers to it, or to a view or tensor of it."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        free = self._free[size]
        block = free.pop() if free else mmap.mmap(-1, max(1, size))
        owner = np.frombuffer(block, dtype, count=math.prod(shape))  # every view and tensor refers to this owner
        weakref.finalize(owner, _give_back, free, block).atexit = False
        return owner.reshape(shape)


def _give_back(free: list[mmap.mmap], block: mmap.mmap) -> None:
    if len(free) < _MOST_KEPT:
        free.append(block)


_AT_ONCE = 1 << 26
"""Bytes of features copied to a device at once."""


class BankArrays(Protocol):
    """Access to the arrays of a bank. images, captions: indices in the split, as returned by `sent`. The values are the
    same wherever the arrays are."""

    def sent(self, values: np.ndarray) -> Tensor:
        """Copy these values to where the arrays are."""
        ...

    def sent_together(self, *values: np.ndarray) -> list[Tensor]:
        """Copy these int64 values to where the arrays are, in one transfer."""
        ...

    def features(self, images: Tensor) -> Tensor:
        """(images, regions, width) float16."""
        ...

    def boxes(self, images: Tensor) -> Tensor:
        """(images, regions, 4) float32."""
        ...

    def vectors(self, captions: Tensor) -> Tensor:
        """(captions, k) float32 semantic vectors, if the arrays have any."""
        ...


class NodeArrays:
    """Reads the files: features go into memory that is reused when a batch is dropped.

    semantics: (captions, k), row = caption id. is_pinned: use pinned memory, which a GPU reads itself.
    """

    def __init__(self, bank: SplitBank, semantics: np.ndarray | None, *, is_pinned: bool = False) -> None:
        self._bank, self._semantics, self._is_pinned = bank, semantics, is_pinned
        self._buffers = RecycledBuffers()

    def sent(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values)

    def sent_together(self, *values: np.ndarray) -> list[Tensor]:
        return [torch.from_numpy(each) for each in values]

    def features(self, images: Tensor) -> Tensor:
        shape = (len(images), self._bank.shape.regions, self._bank.shape.width)
        if self._is_pinned:
            made = torch.empty(shape, dtype=torch.float16, pin_memory=True)
        else:
            made = torch.from_numpy(self._buffers.take(shape, "<f2"))
        self._bank.read_features(images.numpy(), made.numpy())
        return made

    def boxes(self, images: Tensor) -> Tensor:
        assert self._bank.boxes is not None
        return torch.from_numpy(self._bank.boxes[images.numpy()])

    def vectors(self, captions: Tensor) -> Tensor:
        assert self._semantics is not None
        return torch.from_numpy(self._semantics[captions.numpy()].astype(np.float32))


class DeviceArrays:
    """Copies on a device; for each batch only its words and the indices of its images and captions are transferred."""

    def __init__(self, bank: SplitBank, semantics: np.ndarray | None, device: torch.device) -> None:
        self._device, shape = device, bank.shape
        self._features = torch.empty(
            (shape.images, shape.regions, shape.width), dtype=torch.float16, device=device
        )
        at_once = max(1, _AT_ONCE // shape.image_bytes)
        for first in range(0, shape.images, at_once):
            images = np.arange(first, min(first + at_once, shape.images))
            part = np.empty((len(images), shape.regions, shape.width), "<f2")
            bank.read_features(images, part)
            self._features[first : first + len(images)] = torch.from_numpy(part).to(device)
        self._boxes = None if bank.boxes is None else torch.tensor(bank.boxes, device=device)
        self._semantics: Tensor | None = None
        self._made_of: np.ndarray | None = None
        self.use(semantics)

    def use(self, semantics: np.ndarray | None) -> None:
        """Use these vectors from now on; None: the present ones may stay."""
        if semantics is not None and semantics is not self._made_of:
            self._made_of, self._semantics = semantics, None  # free the memory of the old ones first
            self._semantics = torch.tensor(semantics, device=self._device).float()

    def sent(self, values: np.ndarray) -> Tensor:
        made = torch.from_numpy(values)
        if self._device.type == "cuda":
            made = made.pin_memory()
        return made.to(self._device, non_blocking=True)

    def sent_together(self, *values: np.ndarray) -> list[Tensor]:
        together = self.sent(np.concatenate([each.ravel() for each in values]))
        there = torch.split(together, [each.size for each in values])
        return [one.view(each.shape) for one, each in zip(there, values, strict=True)]

    def features(self, images: Tensor) -> Tensor:
        return self._features.index_select(0, images)

    def boxes(self, images: Tensor) -> Tensor:
        assert self._boxes is not None
        return self._boxes.index_select(0, images)

    def vectors(self, captions: Tensor) -> Tensor:
        assert self._semantics is not None
        return self._semantics.index_select(0, captions)


_on_devices: OrderedDict[tuple[torch.device, str], tuple[SplitBank, DeviceArrays]] = OrderedDict()
"""Cached for the next trial of this process."""


def bank_arrays(
    bank: SplitBank, semantics: np.ndarray | None, device: torch.device, *, device_share: float
) -> BankArrays:
    """On a GPU, copies that stay there, if bank and vectors fit into this share of its memory; otherwise the files."""
    if device.type != "cuda":
        return NodeArrays(bank, semantics)
    key = (device, str(bank.path))
    kept = _on_devices.get(key)
    if kept is not None and kept[0] is bank:
        _on_devices.move_to_end(key)
        kept[1].use(semantics)
        return kept[1]
    _on_devices.pop(key, None)
    size = bank.shape.bytes + (0 if semantics is None else semantics.size * 4)
    if not _make_room(device, size, device_share):
        return NodeArrays(bank, semantics, is_pinned=True)
    made = DeviceArrays(bank, semantics, device)
    _on_devices[key] = bank, made
    return made


def _make_room(device: torch.device, size: int, share: float) -> bool:
    """Drop copies of other splits until this one fits beside them; False if it cannot."""
    most = int(share * torch.cuda.get_device_properties(device).total_memory)
    if size > most:
        return False
    while _on_devices and sum(bank.shape.bytes for bank, _ in _on_devices.values()) + size > most:
        _on_devices.popitem(last=False)
    free, _ = torch.cuda.mem_get_info(device)
    return size < free
