from __future__ import annotations

import torch
from torch import nn

from vsetune.networks.batch_normalization import normalize_rows


def test_rows_are_normalised_as_by_the_module_and_move_its_statistics() -> None:
    torch.manual_seed(0)
    ours, theirs, rows = nn.BatchNorm1d(3), nn.BatchNorm1d(3), torch.randn(5, 3)
    assert torch.equal(normalize_rows(ours, rows), theirs(rows))
    assert torch.equal(ours.running_mean, theirs.running_mean)
    assert torch.equal(ours.running_var, theirs.running_var)
    assert torch.equal(normalize_rows(ours.eval(), rows), theirs.eval()(rows))


def test_one_row_is_normalised_by_the_running_statistics_and_leaves_them_alone() -> None:
    norm = nn.BatchNorm1d(2)
    norm.running_mean.copy_(torch.tensor([1.0, 2.0]))
    norm.running_var.copy_(torch.tensor([4.0, 9.0]))
    found = normalize_rows(norm, torch.tensor([[3.0, 8.0]]))
    torch.testing.assert_close(found, torch.tensor([[1.0, 2.0]]), rtol=0, atol=1e-5)
    assert norm.running_mean.tolist() == [1, 2]
    assert norm.running_var.tolist() == [4, 9]


def test_rows_in_half_precision_are_normalised_in_float32() -> None:
    assert normalize_rows(nn.BatchNorm1d(3), torch.randn(4, 3).bfloat16()).dtype == torch.float32
