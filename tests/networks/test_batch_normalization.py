from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vsetune.networks.parts.batch_normalization import normalize_rows


def test_rows_are_normalised_as_by_the_module_and_move_its_statistics() -> None:
    torch.manual_seed(0)
    ours, theirs, rows = nn.BatchNorm1d(3), nn.BatchNorm1d(3), torch.randn(5, 3)
    ours, theirs, rows = ours.double(), theirs.double(), rows.double()
    torch.testing.assert_close(normalize_rows(ours, rows), theirs(rows), rtol=0, atol=1e-12)
    for name, value in theirs.named_buffers():
        torch.testing.assert_close(ours.get_buffer(name), value, rtol=0, atol=1e-12)
    assert ours.num_batches_tracked == 1
    torch.testing.assert_close(normalize_rows(ours.eval(), rows), theirs.eval()(rows), rtol=0, atol=1e-12)
    assert ours.num_batches_tracked == 1


def test_one_row_is_normalised_by_the_running_statistics_and_leaves_them_alone() -> None:
    norm = nn.BatchNorm1d(2)
    norm.running_mean.copy_(torch.tensor([1.0, 2.0]))
    norm.running_var.copy_(torch.tensor([4.0, 9.0]))
    found = normalize_rows(norm, torch.tensor([[3.0, 8.0]]))
    torch.testing.assert_close(found, torch.tensor([[1.0, 2.0]]), rtol=0, atol=1e-5)
    assert norm.running_mean.tolist() == [1, 2]
    assert norm.running_var.tolist() == [4, 9]
    assert norm.num_batches_tracked == 0


def test_rows_in_half_precision_are_normalised_in_float32() -> None:
    assert normalize_rows(nn.BatchNorm1d(3), torch.randn(4, 3).bfloat16()).dtype == torch.float32


@pytest.mark.parametrize("mean", [0.0, 3.0])
def test_in_float32_rows_are_as_exact_as_channels_of_images(mean: float) -> None:
    """Errors against float64. Of (rows, D), as the modules of the references have it, they are 4 to 25 times larger."""
    torch.manual_seed(0)
    rows, upstream = torch.randn(32 * 36, 64) * 1.7 + mean, torch.randn(32 * 36, 64)
    norm = nn.BatchNorm1d(64)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    exact = numbers_of(normalize_rows, norm, rows.double(), upstream.double())
    ours, plain = (numbers_of(each, norm, rows, upstream) for each in (normalize_rows, nn.BatchNorm1d.__call__))
    for name, wanted in exact.items():
        assert error(ours[name], wanted) < 3e-7, name
        assert error(ours[name], wanted) < error(plain[name], wanted) / 3, name


def numbers_of(normalized: Any, norm: nn.BatchNorm1d, rows: Tensor, upstream: Tensor) -> dict[str, Tensor]:
    norm, leaf = copy.deepcopy(norm).to(rows.dtype), rows.clone().requires_grad_()
    found = normalized(norm, leaf)
    found.backward(upstream)
    gradients = {"of rows": leaf.grad, "of weight": norm.weight.grad, "of bias": norm.bias.grad}
    return gradients | {"values": found.detach(), "mean": norm.running_mean, "variance": norm.running_var}


def error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).abs().max() / exact.abs().max())
