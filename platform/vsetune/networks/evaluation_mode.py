"""Evaluation mode of networks, during a training or after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode and no gradient; afterwards the network is in training mode if it was before."""
    was_training = network.training
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        network.train(was_training)
