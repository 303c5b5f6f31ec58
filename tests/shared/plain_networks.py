"""What plain loops over networks share: small batches, layers one vector at a time, the comparison with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network
from vsetune.networks.network_building import build_network

REGIONS, WIDTH, VOCABULARY, LONGEST = 6, 7, 30, 9


def make(spec: Any, *, away: float = 0.3, **sizes: int) -> Any:
    """A network in float64 and evaluation mode, whose parameters are not where they start."""
    torch.manual_seed(0)
    sizes = {"regions": REGIONS, "width": WIDTH, "vocabulary_size": VOCABULARY} | sizes
    network = build_network(spec, **sizes).double()
    with torch.no_grad():
        for value in network.parameters():
            value.add_(torch.rand_like(value) * away)
        for name, value in network.named_buffers():
            if "running" in name:
                value.add_(torch.rand_like(value) * 0.5)
    return network.eval()


def draw(images: int, captions: int | None = None, *, with_boxes: bool = False) -> tuple[ImageInputs, CaptionInputs]:
    """Images of 1 to 6 regions, zeros behind them; captions of 1 to 9 ids with the edges of a parse."""
    generator, captions = torch.Generator().manual_seed(0), captions or images
    counts = torch.randint(1, REGIONS + 1, (images,), generator=generator)
    features = torch.randn(images, REGIONS, WIDTH, generator=generator, dtype=torch.float64)
    features = features * (torch.arange(REGIONS) < counts[:, None])[..., None]
    low = torch.rand(images, REGIONS, 2, generator=generator, dtype=torch.float64) / 2
    boxes = torch.cat((low, low + 0.4), dim=-1) if with_boxes else None
    lengths = torch.randint(1, LONGEST + 1, (captions,), generator=generator)
    is_word = torch.arange(LONGEST) < lengths[:, None]
    tokens = torch.randint(1, VOCABULARY, (captions, LONGEST), generator=generator).masked_fill(~is_word, 0)
    edges = torch.rand(captions, LONGEST, LONGEST, generator=generator) < 0.2
    edges = (edges | edges.mT) & ~torch.eye(LONGEST, dtype=torch.bool) & is_word[:, :, None] & is_word[:, None, :]
    return ImageInputs(features, counts, boxes), CaptionInputs(tokens, lengths, edges)


def encode(network: Network, drawn: tuple[ImageInputs, CaptionInputs]) -> tuple[Encoded, Encoded]:
    return network.encode_images(drawn[0]), network.encode_captions(drawn[1])


def assert_same_with_gradients(leaves: Any, fast: Sequence[Tensor], slow: Sequence[Tensor]) -> None:
    """Values, and the gradients of all leaves through one random weighting of them. leaves: a network or tensors."""
    torch.testing.assert_close(list(fast), list(slow), rtol=1e-9, atol=1e-9)
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(one.shape, generator=generator, dtype=one.dtype) for one in slow]
    leaves = list(leaves.parameters()) if isinstance(leaves, nn.Module) else leaves
    found, wanted = (
        torch.autograd.grad(
            torch.stack([(weight * one).sum() for weight, one in zip(weights, side, strict=True)]).sum(), leaves,
            materialize_grads=True,
        )
        for side in (fast, slow)
    )
    assert any(gradient.abs().max() > 0.01 for gradient in wanted)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


def unit(vector: Tensor) -> Tensor:
    return vector / vector.norm()


def linear(layer: Any, vector: Tensor) -> Tensor:
    """layer: nn.Linear."""
    found: Tensor = layer.weight @ vector + (0 if layer.bias is None else layer.bias)
    return found


def gru_step(weights: Sequence[Tensor], vector: Tensor, state: Tensor) -> Tensor:
    """weights: of the input, of the state, and both biases; r, z, candidate."""
    of_input, of_state, input_bias, state_bias = weights
    inner, outer = (of_input @ vector + input_bias).chunk(3), (of_state @ state + state_bias).chunk(3)
    reset, update = (inner[0] + outer[0]).sigmoid(), (inner[1] + outer[1]).sigmoid()
    return (1 - update) * (inner[2] + reset * outer[2]).tanh() + update * state


def gru_weights(gru: Any, suffix: str = "") -> list[Tensor]:
    """gru: an nn.GRU with suffix _l0 or _l0_reverse, or an nn.GRUCell."""
    return [getattr(gru, f"{name}{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]


def loop_gru(gru: Any, vectors: Sequence[Tensor], suffix: str = "_l0") -> list[Tensor]:
    """The states, step by step."""
    state, states = vectors[0].new_zeros(gru.hidden_size), []
    for vector in vectors:
        state = gru_step(gru_weights(gru, suffix), vector, state)
        states.append(state)
    return states


def loop_both_ways(gru: Any, vectors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    return loop_gru(gru, vectors), loop_gru(gru, vectors[::-1], "_l0_reverse")[::-1]


def loop_batch_norm(norm: Any, rows: Sequence[Tensor], *, training: bool) -> list[Tensor]:
    """Rows of all items together; one row alone, and evaluation, take the running statistics."""
    mean, variance = norm.running_mean, norm.running_var
    if training and len(rows) > 1:
        mean = torch.stack([*rows]).mean(dim=0)
        variance = torch.stack([(row - mean) ** 2 for row in rows]).mean(dim=0)
    return [(row - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias for row in rows]
