"""Losses: similarity in, one number out. `build_loss` makes the loss a spec describes.

Each file holds one loss: pure functions with the formula, and a module that keeps its schedule.
"""

from vsetune.losses import (  # importing registers them
    adaptive_margin,
    additive_margin,
    contrastive,
    info_nce,
    irtm,
    lmh,
    lseh,
    lsh,
    luwm,
    many_to_many,
    margin_based,
    modalities,
    nt_xent,
    order,
    pcme,
    pvse,
    semantic_center,
    top_f,
    weighted_sum,
)
from vsetune.losses.base import Items, Loss, LossContext, LossInputs, LossOutput, Memory, ParameterGroup, Selection
from vsetune.losses.registry import build_loss

__all__ = [
    "Items", "Loss", "LossContext", "LossInputs", "LossOutput", "Memory", "ParameterGroup", "Selection",
    "adaptive_margin", "additive_margin", "build_loss", "contrastive", "info_nce", "irtm", "lmh", "lseh", "lsh", "luwm",
    "many_to_many", "margin_based", "modalities", "nt_xent", "order", "pcme", "pvse", "semantic_center", "top_f",
    "weighted_sum",
]
