"""CLIP's loss (Radford et al. 2021): the formula of `info_nce`, with a learned temperature by default."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vsetune.losses.clip.spec import ClipSpec
from vsetune.losses.info_nce.loss import InfoNce
from vsetune.losses.loss_building import register


@register(ClipSpec)
class Clip(InfoNce):
    """InfoNCE whose temperature may start at the one that the network's weights were trained with."""

    spec: ClipSpec

    @torch.no_grad()
    def take_network_parameters(self, held: Mapping[str, Tensor]) -> None:
        if self.spec.start == "network" and self.spec.learned and "logit_scale" in held:
            self.log_scale.copy_(held["logit_scale"])
            self.after_step()
