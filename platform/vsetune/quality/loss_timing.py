"""The time of a step relative to LMH on the same batch, measured in turns in one run."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from vsetune.losses.lmh.spec import LmhSpec
from vsetune.losses.loss_base import LossContext
from vsetune.losses.loss_building import build_loss
from vsetune.losses.loss_spec import LossSpec
from vsetune.quality.loss_batches import Surroundings, compared_again, leaves_of, pairs, surroundings_of

PAIRS, SIZE = 128, 256
_WARMUP, _ROUNDS = 3, 20


def step_times(spec: LossSpec) -> tuple[float, float]:
    """(milliseconds, multiple of LMH's time) of a step from given embeddings: similarity, loss, backward. Best of 20
    rounds.

    128 pairs of 256 numbers on one core, with the first kind of network that the loss declares.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _step_times(spec)
    finally:
        torch.set_num_threads(threads)


def _step_times(spec: LossSpec) -> tuple[float, float]:
    surroundings = next(surroundings_of(spec))
    loss, lmh = _step(spec, surroundings), _step(LmhSpec(), surroundings)
    seconds: list[tuple[float, float]] = [(_timed(loss), _timed(lmh)) for _ in range(_WARMUP + _ROUNDS)][_WARMUP:]
    own, other = (min(column) for column in zip(*seconds, strict=True))
    return 1000 * own, own / other


def _timed(run: Callable[[], None]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _step(spec: LossSpec, surroundings: Surroundings) -> Callable[[], None]:
    loss, batch = build_loss(spec, LossContext(SIZE, PAIRS)), pairs(surroundings, ids=range(PAIRS), size=SIZE)
    loss.start_epoch(0)

    def run() -> None:
        loss.zero_grad(set_to_none=True)
        for leaf in leaves_of(batch):
            leaf.grad = None
        torch.autograd.backward(loss(compared_again(batch, surroundings)).value)
        loss.before_step()
        loss.after_step()

    return run
