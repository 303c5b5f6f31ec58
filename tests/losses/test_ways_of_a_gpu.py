"""A GPU is asked no questions about values: what a loss computes without them is the same."""

from __future__ import annotations

import pytest
import torch
from loss_values import pools_of
from torch import Tensor

from vsetune.losses.parts.loss_devices import beside
from vsetune.losses.top_f import loss as triplets


def numbers(rows: int, columns: int, *, ties: bool) -> Tensor:
    drawn = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return drawn.round() if ties else drawn


def counted_in(similarity: Tensor, positives: Tensor, fraction: float) -> triplets.ActiveTriplets:
    return triplets.both_directions(pools_of(similarity, ~positives), positives, margin=0.4, fraction=fraction)[0]


def test_top_f_uses_as_many_triplets_where_there_are_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    similarity = numbers(6, 9, ties=True)
    positives = torch.arange(6)[:, None] == torch.arange(9) % 6
    here = counted_in(similarity, positives, 0.5)
    monkeypatch.setattr(triplets, "is_on_cpu", lambda tensor: False)
    there = counted_in(similarity, positives, 0.5)
    torch.testing.assert_close(there.active, here.active)
    torch.testing.assert_close(there.counts.sum(dim=1), here.counts.sum(dim=1))


def test_numbers_beside_a_tensor_stay_what_they_are() -> None:
    values = torch.tensor([3, 1, 2])
    assert torch.equal(beside(values, torch.zeros(1)), values)
