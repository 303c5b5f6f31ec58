"""A small CNN that starts at random learns 32 photographs and their captions by heart."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from vsetune.config.component_specs import NetworkSpec
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.malali_keller.spec import MalaliKellerSpec
from vsetune.networks.mse.spec import MseSpec
from vsetune.networks.network_building import build_network
from vsetune.networks.vse_infinity.spec import VseInfinitySpec

pytestmark = pytest.mark.slow  # that a step lowers the loss is tested with every network

PAIRS, STEPS, WARMUP, MARGIN = 32, 120, 60, 0.2
SMALL: dict[str, Any] = {
    "image_input": "pixels", "embedding_size": 32, "word_size": 16,
    "backbone": {"model": "random", "start_epoch": 0, "rate_factor": 1},
}
SPECS: dict[str, NetworkSpec] = {
    "mse": MseSpec(**SMALL), "malali_keller": MalaliKellerSpec(**SMALL),
    "vse_infinity": VseInfinitySpec(**SMALL, image_mlp=False, augment=False, pooling_size=8),
}


@pytest.mark.parametrize("name", SPECS)
def test_32_pairs_are_learnt_to_a_recall_of_1(name: str) -> None:
    torch.manual_seed(0)
    network = build_network(SPECS[name], regions=1, width=2, vocabulary_size=30)
    coarse = torch.randint(0, 256, (PAIRS, 3, 4, 4), dtype=torch.uint8)
    pixels = coarse.repeat_interleave(8, dim=2).repeat_interleave(8, dim=3)
    images = ImageInputs(torch.zeros(PAIRS, 1, 2), torch.ones(PAIRS, dtype=torch.int64), pixels=pixels[:, None])
    words = CaptionInputs(torch.randint(4, 30, (PAIRS, 6)), torch.full((PAIRS,), 6))
    optimizer = torch.optim.Adam([
        {"params": group.parameters, "lr": 3e-3 * group.factor} for group in network.parameter_groups()
    ])
    for step in range(STEPS):
        network.set_epoch(step / STEPS)
        scores = network.similarity(network.encode_images(images), network.encode_captions(words))
        matched = scores.diagonal()
        wrong = scores.masked_fill(torch.eye(PAIRS, dtype=torch.bool), -2)
        loss = sum(
            (MARGIN + wrong - matched.unsqueeze(side)).relu().sum() if step < WARMUP
            else (MARGIN + wrong.amax(dim=side) - matched).relu().sum()
            for side in (0, 1)
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 2.0)
        optimizer.step()
    network.eval()
    with torch.no_grad():
        scores = network.similarity(network.encode_images(images), network.encode_captions(words))
    expected = torch.arange(PAIRS)
    assert torch.equal(scores.argmax(dim=1), expected)
    assert torch.equal(scores.argmax(dim=0), expected)
