"""NT-Xent: softmax over both modalities together (Chen et al. 2020, SimCLR, Eq. 1).

    mean over the 2 B embeddings z of -log(exp(z.z+ / t) / sum over the 2 B - 1 others z' of exp(z.z' / t))

z+ is the other item of the pair. Unlike in InfoNCE, images are also pushed from images and captions from captions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vsetune.errors import ConfigError
from vsetune.losses.info_nce.loss import softmax_terms
from vsetune.losses.loss_base import Loss, LossInputs, LossOutput, Selection, at_least_float32, require_pairs
from vsetune.losses.loss_building import register
from vsetune.losses.nt_xent.spec import NtXentSpec
from vsetune.losses.parts.pairing import SameImage, pair_negatives
from vsetune.losses.parts.products import cap, dot_products, learned_log_scale, scaled_by


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
class NtXent(Loss):
    """NT-Xent with a fixed or a learned temperature, t = exp(-log_scale), log_scale <= ln 100.

    The value is the mean over the embeddings that have a negative, 0 if none has.
    """

    log_scale: Tensor

    def __init__(self, spec: NtXentSpec) -> None:
        super().__init__(warmup_epochs=0)
        self.spec = spec
        if spec.learned:
            self.log_scale = learned_log_scale(spec.softmax_temperature)

    def forward(self, inputs: LossInputs) -> LossOutput:
        """Raises ConfigError unless the batch consists of pairs with one embedding per item."""
        spec = self.spec
        require_pairs(inputs, spec.name)
        if inputs.images is None or inputs.captions is None:
            raise ConfigError(
                f"loss {spec.name}: got a network that only scores pairs, need one embedding per item; "
                "use info_nce, or a network of kind embedding"
            )
        both = torch.cat([inputs.images.vectors, inputs.captions.vectors])
        cosines = dot_products(both, both)
        if spec.learned:
            logits, temperature = scaled_by(cosines, self.log_scale)
        else:
            logits, temperature = cosines / spec.softmax_temperature, torch.tensor(spec.softmax_temperature)
        terms, valid = nt_xent_terms(logits, inputs.image_ids, same_image_rule=spec.variant)
        selection = Selection(
            at_least_float32(inputs.similarity).detach(), pair_negatives(inputs, spec.variant), None, None,
            is_proxy=True,
        )
        value = terms.sum() / valid.sum().clamp(min=1)
        return LossOutput(value=value, parts={"temperature": temperature}, selection=selection)

    def after_step(self) -> None:
        if self.spec.learned:
            cap(self.log_scale)
