"""TAGS written as plain loops, one pair and one vector at a time, and small networks and batches to hold against it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import TrainingItems
from vsetune.networks.network_building import build_network
from vsetune.networks.tags.network import Tags, WordHead
from vsetune.networks.tags.spec import TagsSpec

REGIONS, WIDTH, VOCABULARY, WORDS = 4, 7, 20, 6
COUNTS, LENGTHS = torch.tensor([4, 1, 3]), torch.tensor([6, 3, 1, 5])


def make(**settings: Any) -> Tags:
    torch.manual_seed(0)
    small = {"embedding_size": 8, "layers": 2, "heads": 2, "dropout": 0.0, "masked_copies": 3, "refills": 2}
    spec = TagsSpec.model_validate({"name": "tags", **small, "synthetic_negatives": 3} | settings)
    built = build_network(spec, regions=REGIONS, width=WIDTH, vocabulary_size=VOCABULARY).double()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    assert isinstance(built, Tags)
    return built


def drawn() -> tuple[ImageInputs, CaptionInputs]:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(3, REGIONS, WIDTH, generator=generator, dtype=torch.float64)
    corner = torch.rand(3, REGIONS, 2, generator=generator, dtype=torch.float64) / 2
    tokens = torch.randint(5, VOCABULARY, (4, WORDS), generator=generator)
    tokens[:, 0], tokens[0, 5], tokens[3, 4] = 1, 2, 2
    tokens = tokens.masked_fill(torch.arange(WORDS) >= LENGTHS[:, None], 0)
    return ImageInputs(features, COUNTS, torch.cat((corner, corner + 0.3), dim=-1)), CaptionInputs(tokens, LENGTHS)


def norm(values: Tensor, layer: nn.LayerNorm) -> Tensor:
    centred = values - values.mean()
    return centred / (centred.square().mean() + 1e-12).sqrt() * layer.weight + layer.bias


def plain_states(network: Tags, tokens: list[int], image: int) -> list[Tensor]:
    """States behind the last layer, one vector at a time, from the equations."""
    images, _ = drawn()
    inputs, states = network.inputs, []
    for place, token in enumerate(tokens):
        summed = inputs.words.weight[token] + inputs.positions.weight[place] + inputs.types.weight[0]
        states.append(norm(summed, inputs.word_norm))
    for region in range(int(COUNTS[image])):
        x1, y1, x2, y2 = images.boxes[image, region].tolist()  # type: ignore[index]
        where = torch.tensor([x1, y1, x2, y2, x2 - x1, y2 - y1, (x2 - x1) * (y2 - y1)], dtype=torch.float64)
        seen = norm(inputs.region_map(images.features[image, region]), inputs.region_norm)
        placed = norm(inputs.place_map(where), inputs.place_norm)
        states.append(norm(seen + placed + inputs.types.weight[1], inputs.image_norm))
    for layer in network.encoder.layers:
        query, key, value = ([part(state) for state in states] for part in (layer.query, layer.key, layer.value))
        changed = []
        for place, state in enumerate(states):
            found = []
            for head in (slice(0, 4), slice(4, 8)):
                products = torch.stack([query[place][head] @ other[head] / 2.0 for other in key])
                weights = products.exp() / products.exp().sum()
                found.append(sum(weight * other[head] for weight, other in zip(weights, value, strict=True)))
            mixed = norm(state + layer.attended(torch.cat(found)), layer.attention_norm)
            hidden = layer.inner(mixed)
            hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
            changed.append(norm(mixed + layer.outer(hidden), layer.output_norm))
        states = changed
    return states


def plain_score(network: Tags, tokens: list[int], image: int) -> Tensor:
    head = network.matching
    logit = head.score.weight[0] @ head.pooled(plain_states(network, tokens, image)[0]).tanh() + head.score.bias[0]
    return 1 / (1 + (-logit).exp())


def plain_word_logits(network: Tags, head: WordHead, state: Tensor) -> Tensor:
    hidden = head.transform(state)
    hidden = norm(hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2))), head.norm)
    return network.inputs.words.weight @ hidden + head.bias


def gradients(network: Tags, value: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(value, list(network.parameters()), allow_unused=True)
    return [torch.zeros(()) if each is None else each for each in found]


def losses_of(network: Tags, images: ImageInputs, captions: CaptionInputs, rows: Tensor) -> dict[str, Tensor]:
    encoded = network.encode_images(images), network.encode_captions(captions)
    negatives = torch.arange(len(encoded[0]))[:, None] != rows
    return network.auxiliary_losses(TrainingItems(*encoded, captions, rows, negatives))
