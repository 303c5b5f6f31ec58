"""Which states of a recurrent layer are computed: one for all sequences that have been equal so far.

Many captions begin with the same words, all with the same start, and in reverse order all with the same end: after "a
man in" the state is the same, however the caption continues. Of 64 captions of Flickr8k 17 % of the forward states and
10 % of the backward states are copies, of 1,000 captions 25 and 16 %.

Letters of shapes: T elements of all sequences together (packed: all first elements, all second ones, ..., longest
sequences first), N states.
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


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
