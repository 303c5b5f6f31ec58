"""The edges of CGMN's graphs."""

from __future__ import annotations

import torch

from vsetune.networks.cgmn.network import neighbouring, overlapping, released_weights


def test_a_cell_of_a_grid_joins_its_eight_neighbours_and_itself():
    near = neighbouring(3, torch.device("cpu"))
    assert near[4].all()
    assert near[0].nonzero().flatten().tolist() == [0, 1, 3, 4]
    assert near[5].nonzero().flatten().tolist() == [1, 2, 4, 5, 7, 8]


def test_boxes_that_share_enough_are_joined():
    # the second covers half of the first: 0.5; the third a quarter of it, 1/7 of both; the last has no area
    boxes = torch.tensor([[[0, 0, 2, 2], [0, 0, 2, 1], [1, 1, 3, 3], [1, 1, 1, 1]]], dtype=torch.float32)
    expected = torch.eye(4, dtype=torch.bool)
    expected[0, 1] = expected[1, 0] = True
    assert torch.equal(overlapping(boxes, 0.5)[0], expected)
    assert torch.equal(overlapping(boxes, 0.51)[0], torch.eye(4, dtype=torch.bool))


def test_released_weights_divide_twice_by_the_norm_of_the_column():
    nodes = torch.tensor([[[2.0, 0.0], [3.0, 4.0], [0.0, 0.0]]], requires_grad=True)
    weights = released_weights(nodes)
    torch.testing.assert_close(weights[0], torch.tensor([[1.0, 6 / 25, 0.0], [6 / 4, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    weights.sum().backward()
    assert torch.isfinite(nodes.grad).all()
    assert nodes.grad.abs().max() < 10
