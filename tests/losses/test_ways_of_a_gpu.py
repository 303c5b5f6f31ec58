"""A GPU is asked no questions about values: what a loss computes without them is the same."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor

from vsetune.losses.irtm import loss as irtm
from vsetune.losses.parts.loss_devices import beside
from vsetune.losses.top_f import loss as triplets


def numbers(rows: int, columns: int, *, ties: bool) -> Tensor:
    drawn = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return drawn.round() if ties else drawn


def as_on_a_gpu(module: ModuleType, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "is_on_cpu", lambda tensor: False)


@pytest.mark.parametrize("fraction", [0.0, 0.3, 1.0])
def test_top_f_counts_the_same_triplets(fraction: float, monkeypatch: pytest.MonkeyPatch) -> None:
    similarity, owners = numbers(7, 12, ties=False), torch.tensor([0, 0, 0, 1, 2, 2, 3, 3, 3, 3, 5, 5])
    positives = torch.arange(7)[:, None] == owners  # images 4 and 6 have no caption here
    counted = [triplets.active_triplets(similarity, positives, ~positives, margin=0.4, fraction=fraction)]
    as_on_a_gpu(triplets, monkeypatch)
    counted.append(triplets.active_triplets(similarity, positives, ~positives, margin=0.4, fraction=fraction))
    here, there = counted
    torch.testing.assert_close(there.counts, here.counts)
    torch.testing.assert_close(there.active, here.active)
    torch.testing.assert_close(there.used, here.used)
    assert here.active.sum() > 0


def test_top_f_uses_as_many_triplets_where_there_are_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    similarity = numbers(6, 9, ties=True)
    positives = torch.arange(6)[:, None] == torch.arange(9) % 6
    here = triplets.active_triplets(similarity, positives, ~positives, margin=0.4, fraction=0.5)
    as_on_a_gpu(triplets, monkeypatch)
    there = triplets.active_triplets(similarity, positives, ~positives, margin=0.4, fraction=0.5)
    torch.testing.assert_close(there.active, here.active)
    torch.testing.assert_close(there.counts.sum(dim=1), here.counts.sum(dim=1))


@pytest.mark.parametrize("hardest", [1, 3, 20])
def test_irtm_has_the_same_means_where_a_row_has_fewer_negatives(hardest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = numbers(5, 8, ties=False)
    scores[2, 1:] = -torch.inf
    here = irtm._row_means(scores, scores[:, 0], margin=0.2, hardest=hardest)
    as_on_a_gpu(irtm, monkeypatch)
    torch.testing.assert_close(irtm._row_means(scores, scores[:, 0], margin=0.2, hardest=hardest), here)


def test_numbers_beside_a_tensor_stay_what_they_are() -> None:
    values = torch.tensor([3, 1, 2])
    assert torch.equal(beside(values, torch.zeros(1)), values)
