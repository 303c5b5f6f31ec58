"""Losses: similarity in, one number out. One folder per loss: `spec.py` (hyperparameters, formula, source; no torch),
`loss.py` (pure functions with the formula, and a module that keeps its schedule). `loss_building.build_loss` makes one.

Outside of vsetune every loss is a class for any training loop, see `PlainLoss`; `named` makes one by its name in study
files, also that of a plugin:

    loss = vsetune.losses.LSEH(margin=0.2)
    value = loss(images, captions, image_ids=ids, semantic_vectors=vectors)    # (n, d), (n, d), (n,), (n, k)
"""

from typing import TYPE_CHECKING

from vsetune.lazy_names import lazy_names

if TYPE_CHECKING:
    from vsetune.losses.loss_classes import (
        CLIP,
        HCL,
        IRTM,
        LMH,
        LSEH,
        LSH,
        LUWM,
        PCME,
        PVSE,
        AdaptiveMargin,
        AdditiveMargin,
        Contrastive,
        InfoNCE,
        ManyToMany,
        MarginBased,
        NTXent,
        Order,
        PCMEpp,
        SemanticCenter,
        SigLIP,
        TopF,
        named,
    )

__all__ = [
    "CLIP", "HCL", "IRTM", "LMH", "LSEH", "LSH", "LUWM", "PCME", "PVSE", "AdaptiveMargin", "AdditiveMargin",
    "Contrastive", "InfoNCE", "ManyToMany", "MarginBased", "NTXent", "Order", "PCMEpp", "SemanticCenter", "SigLIP",
    "TopF", "named",
]

if not TYPE_CHECKING:  # torch is imported with the first loss that is used
    __getattr__, __dir__ = lazy_names(__name__, {"vsetune.losses.loss_classes": __all__})
