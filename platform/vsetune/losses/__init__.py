"""Losses: similarity in, one number out. `build_loss` makes the loss a spec describes.

Each file holds one loss: pure functions with the formula, and a module that keeps its schedule.
"""

from vsetune.losses import adaptive_margin, info_nce, lmh, lseh, lsh, top_f  # importing registers them
from vsetune.losses.base import Loss, LossInputs, LossOutput, Selection
from vsetune.losses.registry import build_loss

__all__ = [
    "Loss", "LossInputs", "LossOutput", "Selection", "adaptive_margin", "build_loss", "info_nce", "lmh", "lseh", "lsh",
    "top_f",
]
