"""Small networks with sampled inputs, and the checks that a network trains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vsetune.config.component_specs import NetworkSpec
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network, TrainingItems
from vsetune.networks.network_building import build_network
from vsetune.quality.checks import Subject, Verdict, equal_gradients, fails, holds, unless_declared
from vsetune.quality.loss_batches import seeded

_PAIRS, _STEPS, _SUMMED_STEPS, _DROP_AT, _RATE, _CLIP = 32, 200, 60, 150, 5e-3, 2.0
_SMALL_STEP = 1e-6
_TOLERANCE = 1e-4
"""Relative and absolute tolerance; the built-in networks differ by less than 1e-8."""
_TRAINED_EPOCH = 1e6

LEARNT_WITH = {"embedding_size": 32, "word_size": 16, "similarity_size": 16, "augment": False, "dropout": 0.0}
"""Settings for learning by heart, for the fields that a network has: large enough sizes, no augmentation or dropout."""


def reaches_every_parameter(network: NetworkSubject) -> Verdict:
    built = network.trained().train()
    built.set_epoch(_TRAINED_EPOCH)  # no part is frozen any more
    torch.autograd.backward(loss_of(built, network.draw(6), hardest=False))
    missed = [
        name for name, value in built.named_parameters() if value.requires_grad and value.grad is None
    ]
    problem = f"no gradient reaches {', '.join(missed)}; use them in encode_images, encode_captions or similarity"
    return unless_declared(
        problem if missed else None, network.resolved().stop_gradient, f"{sum(1 for _ in built.parameters())} tensors"
    )


def has_exact_gradients(network: NetworkSubject) -> Verdict:
    """Compare the derivative along one random direction of all parameters; any wrong gradient changes it."""
    built, drawn = network.trained().train(), network.draw(5)
    built.set_epoch(_TRAINED_EPOCH)
    moved = [value for value in built.parameters() if value.requires_grad]
    generator = torch.Generator().manual_seed(0)
    direction = [torch.randn(value.shape, generator=generator, dtype=value.dtype) for value in moved]
    gradients = torch.autograd.grad(_loss_again(built, drawn, hardest=False), moved, allow_unused=True)
    autograd = math.fsum(
        float((gradient * way).sum())
        for gradient, way in zip(gradients, direction, strict=True) if gradient is not None
    )
    losses = []
    with torch.no_grad():
        for step in (_SMALL_STEP, -2 * _SMALL_STEP):
            for value, way in zip(moved, direction, strict=True):
                value.add_(way, alpha=step)
            losses.append(float(_loss_again(built, drawn, hardest=False)))
    differences = (losses[0] - losses[1]) / (2 * _SMALL_STEP)
    problem = (
        f"along a random direction autograd gives {autograd:.6g}, finite differences {differences:.6g}; look for "
        "detach(), .item(), float() or rounding in encode_images, encode_captions and similarity"
    )
    is_equal = math.isclose(autograd, differences, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return equal_gradients(None if is_equal else problem, network.resolved().stop_gradient)


def lowers_its_loss(network: NetworkSubject) -> Verdict:
    built, drawn, losses = network.fresh().train(), network.draw(5), []
    for _ in range(2):
        losses.append(_loss_again(built, drawn))
        built.zero_grad()
        torch.autograd.backward(losses[-1])
        with torch.no_grad():
            for value in built.parameters():
                if value.grad is not None:
                    value.sub_(value.grad, alpha=_SMALL_STEP)
    before, after = (float(loss.detach()) for loss in losses)
    if after < before:
        return holds()
    return unless_declared(
        f"the loss goes from {before:.9g} to {after:.9g}; a gradient is wrong or missing",
        network.resolved().stop_gradient,
    )


def learns_pairs_by_heart(network: NetworkSubject) -> Verdict:
    known = network.spec.model_fields
    settings = {key: value for key, value in LEARNT_WITH.items() if key in known}
    easy = NetworkSubject(network.spec, settings | dict(network.settings))
    built = easy.fresh().float().train()
    images, captions = in_float32(easy.draw(_PAIRS))
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(5, VOCABULARY, (_PAIRS, WORDS), generator=generator)
    drawn = images, replace(captions, tokens=tokens, lengths=torch.full((_PAIRS,), WORDS))
    optimizer = torch.optim.Adam(built.parameters(), lr=_RATE)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [_DROP_AT])  # lets running statistics settle
    with seeded(0):
        for step in range(_STEPS):
            loss = loss_of(built, drawn, hardest=step > _SUMMED_STEPS)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(built.parameters(), _CLIP)
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        found = scores(built.eval(), drawn)
    right = sum(int((found.argmax(dim=axis) == torch.arange(_PAIRS)).sum()) for axis in (0, 1))
    if right == 2 * _PAIRS:
        return holds(f"{_STEPS} steps")
    return fails(f"after {_STEPS} steps of Adam {right} of {2 * _PAIRS} queries find their pair, need all")


def _loss_again(built: Network, drawn: Drawn, *, hardest: bool = True) -> Tensor:
    """`loss_of` with the same random numbers on each call, so that the same words are dropped."""
    with seeded(0):
        return loss_of(built, drawn, hardest=hardest)


REGIONS, WIDTH, VOCABULARY, WORDS, PHRASES = 9, 7, 30, 8, 3
SIZES: Mapping[str, int] = {
    "embedding_size": 8, "word_size": 6, "pooling_size": 4, "similarity_size": 6, "captioning_size": 6, "blocks": 2,
    "kernels": 2, "hidden_size": 4, "samples": 3, "image_size": 32, "layers": 2, "heads": 2, "masked_copies": 2,
    "refills": 2, "synthetic_negatives": 3,
}
"""Small values for the fields that a network has, so that a check is fast."""

_AWAY, _STATISTICS_AWAY, _MARGIN = 0.2, 0.5, 0.2

Drawn = tuple[ImageInputs, CaptionInputs]


class NetworkSubject(Subject[NetworkSpec]):
    """The network under check. settings: fields that differ from their defaults, besides the small sizes."""

    def resolved(self, **changes: Any) -> NetworkSpec:
        sizes = {name: size for name, size in SIZES.items() if name in self.spec.model_fields}
        return super().resolved(**{**sizes, **self.settings, **changes})

    @property
    def regions(self) -> int:
        """Number of vectors per image; 1 if the network reads a global vector."""
        return 1 if getattr(self.resolved(), "image_input", None) == "global" else REGIONS

    def fresh(self, *, seed: int = 0, regions: int | None = None, **changes: Any) -> Network:
        """The network at the start of a training, in float64."""
        with seeded(seed):
            built = build_network(
                self.resolved(**changes), regions=regions or self.regions, width=WIDTH, vocabulary_size=VOCABULARY
            )
        return built.double()

    def trained(self, *, seed: int = 0, regions: int | None = None) -> Network:
        """The network in evaluation mode, moved away from its start so that parts that start at zero or one have an
        effect."""
        built = self.fresh(seed=seed, regions=regions)
        generator = torch.Generator().manual_seed(seed + 100)
        with torch.no_grad():
            for parameter in built.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype) * _AWAY)
            for name, value in built.named_buffers():
                if "running" in name:
                    value.add_(torch.rand(value.shape, generator=generator, dtype=value.dtype) * _STATISTICS_AWAY)
        return built.eval()

    def draw(self, images: int, captions: int | None = None) -> Drawn:
        """Sampled images with all regions, and photographs if the spec reads them; captions with parses and phrases."""
        generator, spec = torch.Generator().manual_seed(0), self.resolved()
        return _draw_images(images, self.regions, spec, generator), _draw_captions(captions or images, generator)


def _draw_images(count: int, regions: int, spec: NetworkSpec, generator: torch.Generator) -> ImageInputs:
    features = torch.randn(count, regions, WIDTH, generator=generator, dtype=torch.float64)
    low = torch.rand(count, regions, 2, generator=generator, dtype=torch.float64) / 2
    images = ImageInputs(features, torch.full((count,), regions), torch.cat((low, low + 0.4), dim=-1))
    if spec.reads.pixels is None:
        return images
    shape = (count, 1, 3, spec.reads.pixels.size, spec.reads.pixels.size)
    return replace(images, pixels=torch.randint(256, shape, generator=generator, dtype=torch.uint8))


def _draw_captions(count: int, generator: torch.Generator) -> CaptionInputs:
    lengths = torch.randint(1, WORDS + 1, (count,), generator=generator)
    tokens = torch.randint(1, VOCABULARY, (count, WORDS), generator=generator)
    is_word = torch.arange(WORDS) < lengths[:, None]
    edges = torch.rand(count, WORDS, WORDS, generator=generator) < 0.2
    edges = (edges | edges.mT) & ~torch.eye(WORDS, dtype=torch.bool) & is_word[:, :, None] & is_word[:, None, :]
    phrases = (torch.rand(count, PHRASES, WORDS, generator=generator) < 0.4) & is_word[:, None]
    return CaptionInputs(tokens.masked_fill(~is_word, 0), lengths, edges, phrases)


def rows_of(inputs: Any, rows: Any) -> Any:
    """The images or captions at `rows`, in that order."""
    return type(inputs)(**{name: value if value is None else value[rows] for name, value in vars(inputs).items()})


def in_float32(drawn: Drawn) -> Drawn:
    images, captions = drawn
    boxes = None if images.boxes is None else images.boxes.float()
    return replace(images, features=images.features.float(), boxes=boxes), captions


def encode(network: Network, drawn: Drawn) -> tuple[Encoded, Encoded]:
    return network.encode_images(drawn[0]), network.encode_captions(drawn[1])


def scores(network: Network, drawn: Drawn) -> Tensor:
    """Similarities, (images, captions)."""
    return network.similarity(*encode(network, drawn))


def loss_of(network: Network, drawn: Drawn, *, hardest: bool = True) -> Tensor:
    """Hinge loss on the scores of pairs and, in training, the network's auxiliary losses. hardest: only the hardest
    negative counts, else all of them."""
    images, captions = encode(network, drawn)
    similarity = network.similarity(images, captions)
    negatives = ~torch.eye(len(similarity), dtype=torch.bool, device=similarity.device)
    matched = similarity.diagonal()
    by_caption = (_MARGIN + similarity - matched[:, None]).relu() * negatives
    by_image = (_MARGIN + similarity - matched).relu() * negatives
    loss = by_caption.amax(dim=1).sum() + by_image.amax(dim=0).sum() if hardest else (by_caption + by_image).sum()
    if network.training:
        items = TrainingItems(images, captions, drawn[1], torch.arange(len(images)), negatives)
        loss = loss + sum(network.auxiliary_losses(items).values())
    return loss
