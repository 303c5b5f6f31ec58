"""Small networks and inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from vsetune.config.component_specs import NetworkSpec
from vsetune.networks.network_base import Network
from vsetune.networks.network_building import build_network

REGIONS, WIDTH, WORDS = 6, 7, 30

def make(spec: NetworkSpec, *, seed: int = 0, regions: int = REGIONS) -> Network:
    torch.manual_seed(seed)
    return build_network(spec, regions=regions, width=WIDTH, vocabulary_size=WORDS).double().eval()


@pytest.fixture
def network() -> Callable[..., Network]:
    """network(spec, seed=0): a new one, evaluation mode, float64."""
    return make


@pytest.fixture
def inputs() -> Callable[..., dict[str, Any]]:
    """inputs(batch): features, region_counts, tokens, lengths; captions of 1 to 9 tokens."""

    def draw(batch: int, *, seed: int = 0) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(1, 10, (batch,), generator=generator)
        tokens = torch.randint(1, WORDS, (batch, 9), generator=generator)
        tokens = tokens.masked_fill(torch.arange(9) >= lengths[:, None], 0)
        return {
            "features": torch.randn(batch, REGIONS, WIDTH, generator=generator, dtype=torch.float64),
            "region_counts": torch.full((batch,), REGIONS),
            "tokens": tokens,
            "lengths": lengths,
        }

    return draw
