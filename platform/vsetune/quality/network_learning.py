"""Checks that a network trains."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from vsetune.networks.network_base import Network
from vsetune.quality.checks import Verdict, equal_gradients, fails, holds, unless_declared
from vsetune.quality.drawn_batches import VOCABULARY, WORDS, Drawn, NetworkSubject, in_float32, loss_of, scores

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
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
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
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return loss_of(built, drawn, hardest=hardest)
