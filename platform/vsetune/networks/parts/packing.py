"""Sequences of different lengths: packing, which parts are real, and which states are equal."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
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


class Step(NamedTuple):
    """States that are computed together, and the state before each of them; none of the first step, from zero."""

    rows: slice
    before: Tensor


class States(NamedTuple):
    """In the order of the steps. elements: (N,) row of the inputs that each state reads; places: (T,) state of each
    element. Both None where each element has the state of its own row."""

    steps: list[Step]
    elements: Tensor | None = None
    places: Tensor | None = None


def states_of_all(sizes: list[int], *, backwards: bool) -> States:
    """One state for each element. sizes: number of sequences that have each length or more."""
    rows = _steps_of(sizes)
    steps = [Step(rows[0], torch.arange(0))]
    for one, other in zip(rows[1:], rows, strict=False):
        steps.append(Step(one, torch.arange(other.start, other.start + one.stop - one.start)))
    if not backwards:
        return States(steps)
    turned = torch.from_numpy(_turned(sizes))
    return States(steps, turned, turned)


def shared_states(elements: Tensor, sizes: list[int], *, backwards: bool) -> States:
    """One state for all sequences that have been equal so far. elements: (T,) number of each element, from 0; sizes: as
    above."""
    turned = _turned(sizes) if backwards else np.arange(len(elements))
    read = elements.numpy()[turned]
    kinds = int(read.max()) + 1
    states, chosen = np.empty(len(read), dtype=np.int64), []
    steps: list[Step] = []
    come_from, count = np.zeros(sizes[0], np.int64), 0  # before the first step all have read nothing
    for rows in _steps_of(sizes):
        come_from = come_from[: rows.stop - rows.start]  # sequences that are long enough stand first
        _, samples, numbers = np.unique(come_from * kinds + read[rows], return_index=True, return_inverse=True)
        before = come_from[samples] if steps else samples[:0]
        steps.append(Step(slice(count, count + len(samples)), torch.from_numpy(before)))
        chosen.append(read[rows][samples])
        come_from = states[rows] = count + numbers
        count += len(samples)
    places = np.empty_like(states)
    places[turned] = states
    return States(steps, torch.from_numpy(np.concatenate(chosen)), torch.from_numpy(places))


def _steps_of(sizes: list[int]) -> list[slice]:
    """Rows of the elements that are read together, one step after the other."""
    return [slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]


def _turned(sizes: list[int]) -> np.ndarray:
    """(T,) rows of all last elements, all last but one, ...: reading it again gives back the order."""
    counts = np.asarray(sizes)
    starts = counts.cumsum() - counts
    steps = np.repeat(np.arange(len(counts)), counts)
    sequences = np.arange(counts.sum()) - starts[steps]
    lengths = (counts[:, None] > np.arange(counts[0])).sum(axis=0)
    rows: np.ndarray = starts[lengths[sequences] - 1 - steps] + sequences
    return rows
