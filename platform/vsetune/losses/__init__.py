"""Losses: similarity in, one number out. One folder per loss: `spec.py` (hyperparameters, formula, source; no torch),
`loss.py` (pure functions with the formula, and a module that keeps its schedule). `loss_building.build_loss` makes one.

Outside of vsetune, `vsetune.losses.NAME(...)` makes a loss for any training loop, see `PlainLoss`:

    loss = vsetune.losses.lseh(margin=0.2)
    value = loss(images, captions, image_ids=ids, semantic_vectors=vectors)    # (n, d), (n, d), (n,), (n, k)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsetune.config.callable_modules import components_by_name

if TYPE_CHECKING:
    from vsetune.losses.plain_loss import PlainLoss

    adaptive_margin: Callable[..., PlainLoss]
    additive_margin: Callable[..., PlainLoss]
    clip: Callable[..., PlainLoss]
    contrastive: Callable[..., PlainLoss]
    hcl: Callable[..., PlainLoss]
    info_nce: Callable[..., PlainLoss]
    irtm: Callable[..., PlainLoss]
    lmh: Callable[..., PlainLoss]
    lseh: Callable[..., PlainLoss]
    lsh: Callable[..., PlainLoss]
    luwm: Callable[..., PlainLoss]
    many_to_many: Callable[..., PlainLoss]
    margin_based: Callable[..., PlainLoss]
    nt_xent: Callable[..., PlainLoss]
    order: Callable[..., PlainLoss]
    pcme: Callable[..., PlainLoss]
    pcme_pp: Callable[..., PlainLoss]
    pvse: Callable[..., PlainLoss]
    semantic_center: Callable[..., PlainLoss]
    siglip: Callable[..., PlainLoss]
    top_f: Callable[..., PlainLoss]


def _maker(name: str) -> Callable[..., Any]:
    """The function that makes the loss of a name."""

    def make(**settings: Any) -> PlainLoss:
        from vsetune.losses.plain_loss import plain_loss

        return plain_loss(name, **settings)

    make.__doc__ = (
        f"`vsetune.losses.{name}(**settings)` makes this loss as a torch module: `help(vsetune.PlainLoss)` says how to "
        f"call it, `vsetune losses show {name}` prints its formula and settings."
    )
    return make


def _names() -> Iterable[str]:
    from vsetune.config.component_specs import LOSSES

    return LOSSES


__getattr__, __dir__ = components_by_name(__name__, Path(__file__).parent, names=_names, maker=_maker)
