"""NT-Xent: softmax over both modalities together (Chen et al. 2020, SimCLR, Eq. 1).

    mean over the 2 B embeddings z of -log(exp(z.z+ / t) / sum over the 2 B - 1 others z' of exp(z.z' / t))

z+ is the other item of the pair. Unlike in InfoNCE, images are also pushed from images and captions from captions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vsetune.losses.info_nce.loss import SoftmaxLoss, softmax_terms
from vsetune.losses.loss_base import (
    LossInputs,
    LossOutput,
    Selection,
    at_least_float32,
    require_items,
    require_pairs,
)
from vsetune.losses.loss_building import register
from vsetune.losses.nt_xent.spec import NtXentSpec
from vsetune.losses.parts.pairing import pair_negatives
from vsetune.losses.parts.products import dot_products
from vsetune.losses.parts.spec_fields import SameImage


def nt_xent_terms(logits: Tensor, image_ids: Tensor, *, same_image_rule: SameImage) -> tuple[Tensor, Tensor]:
    """Cross-entropy per embedding: the B images, then the B captions, in the order of `image_ids` (B,).

    logits: (2B, 2B), similarity over temperature of all with all; the diagonal is not used. same_image_rule: `decided`
    removes items of the same image, except the partner, from the denominator; `diagonal` keeps them.
    Returns terms (2B,), 0 for an embedding without negatives, and valid (2B,) bool.
    """
    itself = torch.eye(logits.shape[0], dtype=torch.bool, device=logits.device)
    partner = itself.roll(image_ids.shape[0], dims=1)
    negatives = ~(itself | partner)
    if same_image_rule == "decided":
        both = torch.cat([image_ids, image_ids])
        negatives &= both[:, None] != both[None, :]
    return softmax_terms(logits, partner, negatives, sum_inside=False)


@register(NtXentSpec)
class NtXent(SoftmaxLoss):
    """NT-Xent. The value is the mean over the embeddings that have a negative, 0 if none has."""

    spec: NtXentSpec

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError unless the batch consists of pairs with one embedding per item."""
        spec = self.spec
        require_pairs(inputs, spec.name)
        both = torch.cat([items.vectors for items in require_items(inputs, spec.name)])
        logits, parts = self.scaled(dot_products(both, both))
        terms, valid = nt_xent_terms(logits, inputs.image_ids, same_image_rule=spec.variant)
        selection = Selection(
            at_least_float32(inputs.similarity).detach(), pair_negatives(inputs, spec.variant), None, None,
            is_proxy=True,
        )
        value = terms.sum() / valid.sum().clamp(min=1)
        return LossOutput(value=value, parts=parts, selection=selection)
