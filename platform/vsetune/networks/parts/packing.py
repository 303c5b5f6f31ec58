"""Sequences of different lengths without padding, as recurrent layers read them.

The same numbers as `pack_padded_sequence` and `pad_packed_sequence`, which wait for a GPU, because they copy lengths
and orders to it and back. Here everything that depends on lengths is computed on the host and copied once.

Letters of shapes: n sequences, P elements of the longest, T elements of all of them together, U distinct ones.
"""

from __future__ import annotations

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

    def spelt_out(self) -> PackedSequence:
        """The same sequences with every element written out."""
        return self.places._replace(data=self.table.index_select(0, self.places.data))


def spelt_out(sequences: PackedSequence | Repeated) -> PackedSequence:
    return sequences.spelt_out() if isinstance(sequences, Repeated) else sequences


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
