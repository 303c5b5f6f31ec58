"""Parts of GSMN: edges between regions, links between words."""

from __future__ import annotations

import pytest
import torch

from vsetune.networks.gsmn.matching import BoxKernels, word_links


@pytest.mark.parametrize("normalized_over", ["kernels", "neighbours"])
def test_visual_edges_sum_to_one_and_are_zero_where_padded(normalized_over):
    torch.manual_seed(0)
    kernels, counts = BoxKernels(3, normalized_over=normalized_over), torch.tensor([5, 2])
    mask = torch.arange(5) < counts[:, None]
    edges = kernels(torch.rand(2, 5, 2), mask)
    pairs = mask[:, :, None] & mask[:, None]
    assert (edges[~pairs[:, None].expand_as(edges)] == 0).all()
    if normalized_over == "kernels":
        torch.testing.assert_close(edges.sum(dim=1), pairs.float())
    else:
        torch.testing.assert_close(edges.sum(dim=3), mask[:, None].expand(-1, 3, -1).float())


def test_edges_stay_finite_where_every_kernel_underflows():
    kernels = BoxKernels(2, normalized_over="kernels")
    with torch.no_grad():
        kernels.width_distance.fill_(0.0)
        kernels.mean_distance.copy_(torch.tensor([0.4, 0.9]))
    edges = kernels(torch.rand(1, 4, 2), torch.ones(1, 4, dtype=torch.bool))
    edges[:, 0].sum().backward()
    torch.testing.assert_close(edges.sum(dim=1), torch.ones(1, 4, 4))
    assert all(torch.isfinite(value.grad).all() for value in kernels.parameters())


def test_links_of_words_sum_to_one_and_leave_out_padding_and_strangers():
    torch.manual_seed(0)
    words, lengths = torch.nn.functional.normalize(torch.randn(2, 4, 6), dim=-1), torch.tensor([4, 2])
    joined_to = torch.zeros(2, 4, 4, dtype=torch.bool)
    joined_to[0, 0, 2] = joined_to[0, 2, 0] = True
    links = word_links(words, lengths, joined_to, 5.0)
    assert (links[0] > 0).tolist() == [
        [True, False, True, False], [False, True, False, False], [True, False, True, False], [False, False, False, True]
    ]
    dense = word_links(words, lengths, None, 5.0)
    assert (dense[1] > 0).tolist() == [[True, True, False, False]] * 2 + [[False] * 4] * 2
    for found in (links, dense):
        torch.testing.assert_close(found.sum(dim=-1), (torch.arange(4) < lengths[:, None]).float())
