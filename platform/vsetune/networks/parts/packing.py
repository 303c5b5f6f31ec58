"""Sequences of different lengths: packing, and which parts are real."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from vsetune.networks.parts.network_devices import beside


class Repeated(NamedTuple):
    """Sequences with recurring elements, such as words. table: (U, ...) each element once; places: packed, (T,) rows of
    the table."""

    table: Tensor
    places: PackedSequence


def spelt_out(sequences: PackedSequence | Repeated) -> PackedSequence:
    """The same sequences with every element written out."""
    if not isinstance(sequences, Repeated):
        return sequences
    return sequences.places._replace(data=sequences.table.index_select(0, sequences.places.data))


def pack(values: Tensor, lengths: Tensor) -> PackedSequence:
    """All first elements, all second ones, ..., longest sequences first. values: (n, P, ...); lengths: (n,) from 1, on
    the host."""
    ranked, order = lengths.sort(descending=True)
    is_there = torch.arange(int(ranked[0]))[:, None] < ranked
    elements, sequences = is_there.nonzero(as_tuple=True)
    places = order[sequences] * values.shape[1] + elements
    back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
    sent = torch.split(beside(torch.cat((places, order, back)), values), [len(places), len(order), len(order)])
    return PackedSequence(values.flatten(0, 1).index_select(0, sent[0]), is_there.sum(dim=1), sent[1], sent[2])


def unpack(packed: PackedSequence, parts: int | None = None) -> Tensor:
    """(n, P, ...) with zeros behind each sequence. parts: P, that of the longest unless it is given."""
    count, longest = int(packed.batch_sizes[0]), len(packed.batch_sizes) if parts is None else parts
    rows = packed.data
    empty = rows.new_zeros(count * longest, *rows.shape[1:])
    return empty.index_copy(0, _places(packed, longest), rows).view(count, longest, *rows.shape[1:])


def packed_mask(packed: PackedSequence) -> Tensor:
    """(n, P) bool, True for real elements."""
    count, longest = int(packed.batch_sizes[0]), len(packed.batch_sizes)
    empty = torch.zeros(count * longest, dtype=torch.bool, device=packed.data.device)
    return empty.index_fill_(0, _places(packed, longest), True).view(count, longest)


def _places(packed: PackedSequence, parts: int) -> Tensor:
    """(T,) of each row among all n * P places."""
    elements, ranks = (torch.arange(int(packed.batch_sizes[0])) < packed.batch_sizes[:, None]).nonzero(as_tuple=True)
    sent = beside(torch.stack((elements, ranks)), packed.data)
    sequences = sent[1] if packed.sorted_indices is None else packed.sorted_indices.index_select(0, sent[1])
    return sequences * parts + sent[0]


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
