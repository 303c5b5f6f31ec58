"""Vectors of unit length: zeros stay zeros, and neither a NaN nor an infinity becomes one."""

from __future__ import annotations

import torch

from vsetune.metrics.vectors import unit_length


def test_a_zero_vector_stays_zero_and_gets_no_gradient() -> None:
    vectors = torch.tensor([[0.0, 0.0], [0.3, 0.4]], requires_grad=True)
    unit = unit_length(vectors)
    torch.testing.assert_close(unit, torch.tensor([[0.0, 0.0], [0.6, 0.8]]))
    unit.sum().backward()
    assert vectors.grad is not None
    assert torch.equal(vectors.grad[0], torch.zeros(2))
    # d/dx of x/|x| summed over both coordinates: (1 - (0.6 + 0.8) * x_hat) / 0.5
    torch.testing.assert_close(vectors.grad[1], torch.tensor([(1 - 1.4 * 0.6) / 0.5, (1 - 1.4 * 0.8) / 0.5]))


def test_a_vector_of_infinite_length_is_none_of_length_zero() -> None:
    """A network that a learning rate of 1e12 had blown up scored 0 everywhere, and ended as a finished trial of 0 %."""
    vectors = torch.ones(3, 4)
    vectors[0], vectors[1, 2] = 0.0, 1e20  # whose square is infinite
    for unit in (unit_length(vectors), unit_length(vectors.requires_grad_())):
        assert unit.isnan().all(dim=-1).tolist() == [False, True, False]
        assert torch.equal(unit[[0, 2]], torch.tensor([[0.0] * 4, [0.5] * 4]))
