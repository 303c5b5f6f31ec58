"""The largest entries of rows, found by sorting: exactly as many as asked for, or no answer."""

from __future__ import annotations

import math

import pytest
import torch

from vsetune.losses.parts.pairing import floors_of_largest


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(4))
def test_the_entries_above_a_floor_are_the_largest(seed: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(7, 11, generator=generator, dtype=dtype)
    values[2, :5] = float("-inf")
    counts = torch.tensor([0, 1, 3, 11, 10, 5, 2])
    floors = floors_of_largest(values, counts)
    assert floors is not None
    for row, count, floor in zip(values.tolist(), counts.tolist(), floors.tolist(), strict=True):
        assert [value for value in row if value > floor] == [v for v in row if v in sorted(row)[11 - count :]]
        assert len([value for value in row if value > floor]) == count


def test_the_transpose_is_read_by_its_own_rows() -> None:
    values = torch.tensor([[1.0, 6.0], [2.0, 5.0], [3.0, 4.0]])
    floors = floors_of_largest(values.T, torch.tensor([1, 2]))
    assert floors is not None
    assert (floors[:, None] < values.T).tolist() == [[False, False, True], [True, True, False]]


def test_a_tie_for_the_last_place_has_no_answer_and_a_tie_elsewhere_has() -> None:
    values = torch.tensor([[3.0, 2.0, 2.0, 1.0]])
    assert floors_of_largest(values, torch.tensor([2])) is None
    for count in (1, 3, 4):
        floors = floors_of_largest(values, torch.tensor([count]))
        assert floors is not None
        assert int((values > floors[:, None]).sum()) == count


def test_a_nan_is_above_no_floor() -> None:
    floors = floors_of_largest(torch.tensor([[1.0, math.nan, 3.0, 2.0]]), torch.tensor([1]))
    assert floors is None or not bool(floors < 3)


def test_nothing_to_choose_from_has_no_answer() -> None:
    assert floors_of_largest(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)) is None
