"""CGMN's node matching as functions of nodes."""

from __future__ import annotations

import pytest
import torch

from vsetune.networks.cgmn import network
from vsetune.networks.cgmn.network import node_matching_loss, node_matching_scores


def loop_matching(regions, words):
    def cosine(x, y):
        return x @ y / x.norm() / y.norm()

    return torch.stack([
        torch.stack([
            sum(torch.stack([cosine(word, region) for region in image]).max() for word in caption) for caption in words
        ])
        for image in regions
    ])


def test_the_size_of_the_blocks_of_node_matching_does_not_matter(monkeypatch):
    regions, words = torch.randn(3, 4, 6).double(), torch.randn(5, 7, 6).double()
    are_regions = torch.arange(4) < torch.tensor([4, 1, 2])[:, None]
    are_words = torch.arange(7) < torch.tensor([7, 1, 3, 4, 2])[:, None]
    whole = node_matching_scores(regions, are_regions, words, are_words)
    expected = loop_matching(
        [item[keep] for item, keep in zip(regions, are_regions, strict=True)],
        [item[keep] for item, keep in zip(words, are_words, strict=True)],
    )
    torch.testing.assert_close(whole, expected)
    assert (whole <= are_words.sum(dim=1) + 1e-12).all()
    monkeypatch.setattr(network, "_NUMBERS_PER_BLOCK", 200)
    torch.testing.assert_close(node_matching_scores(regions, are_regions, words, are_words), whole)


def test_node_matching_by_hand():
    # negatives of row 0 / column 1: margin 0.2, entry 0.9 against 1.0 and 0.8; the other entry is far below
    scores = torch.tensor([[1.0, 0.9], [0.0, 0.8]])
    loss = node_matching_loss(scores, ~torch.eye(2, dtype=torch.bool), margin=0.2)
    assert loss.item() == pytest.approx((0.2 + 0.9 - 1.0) + (0.2 + 0.9 - 0.8))
