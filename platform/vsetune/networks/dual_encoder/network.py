"""Dual encoders of `transformers`: CLIP, SigLIP and AltCLIP as released, or an image and a text tower joined (LiT)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vsetune.errors import ConfigError
from vsetune.networks.dual_encoder.saved_towers import save_towers, save_whole
from vsetune.networks.dual_encoder.spec import DualEncoderSpec
from vsetune.networks.dual_encoder.towers import JoinedTowers, SmallTransformer, Towers, WholeModel
from vsetune.networks.dual_encoder.trained_layers import TowerRates, add_low_rank_updates, tower_groups
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import FrozenTower, Network, NetworkGroup, groups_beside, unit_length
from vsetune.networks.network_building import register
from vsetune.networks.parts.backbone import COLOURS


@register(DualEncoderSpec)
class DualEncoder(Network):
    """v = n(P_v image tower), t = n(P_t text tower); similarities are cosines.

    The scale and the bias of logits belong to the loss, which learns them; those of a released model are where a loss
    may start, and follow what it learns, so that the model can be used elsewhere. A frozen tower is in evaluation mode
    and has no graph.
    """

    def __init__(self, spec: DualEncoderSpec, *, width: int, vocabulary_size: int) -> None:
        super().__init__(spec)
        self._spec = spec
        self.towers: Towers = (
            WholeModel(spec) if spec.model is not None
            else JoinedTowers(spec, width=width, vocabulary_size=vocabulary_size)
        )
        self.embedding_size = self.towers.size
        for tower, rates in self._rates():
            if rates.trained != 0 and spec.lora_rank:
                add_low_rank_updates(tower, rank=spec.lora_rank, alpha=spec.lora_alpha, names=spec.lora_layers)
            if spec.activation_checkpointing:
                _checkpoint_activations(tower)
        groups = self.parameter_groups()  # refuses more layers than there are
        if all(group.start_epoch == math.inf for group in groups if group.parameters):
            raise ConfigError(
                "VSE-N065", "network dual_encoder: image_layers 0 and text_layers 0 freeze all of {model}, which has "
                "no projections; set one of them to 1 or more", model=spec.model,
            )

    def encode_images(self, images: ImageInputs) -> Encoded:
        """(n, D)."""
        with self._graph(self._spec.image_layers):
            vectors = self.towers.image_vectors(images)
        return Encoded(unit_length(self.towers.project_images(vectors)))

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        """(m, D). DataError for a caption that is longer than the model reads."""
        with self._graph(self._spec.text_layers):
            states = self.towers.caption_vectors(captions.tokens, captions.lengths)
        return Encoded(unit_length(self.towers.project_captions(states)))

    def frozen_tower(self) -> FrozenTower | None:
        towers = self.towers
        if towers.image is None:
            return None
        weights = {**towers.image.state_dict(), **{name: towers.get_buffer(name) for name in COLOURS}}
        return FrozenTower(weights, lambda pixels: towers.vectors_of_pixels(pixels[:, 0]))

    def parameter_groups(self) -> list[NetworkGroup]:
        """The projections at the rate of the training, the towers level by level, frozen ones from infinity on."""
        groups = [
            group for tower, rates in self._rates()
            for group in tower_groups(tower, rates, are_adapted=self._spec.lora_rank > 0)
        ]
        scales = [value for value in self.towers.scales().values() if isinstance(value, nn.Parameter)]
        if scales:
            groups.append(NetworkGroup(scales, start_epoch=math.inf))
        return groups_beside(self, groups)

    def train(self, mode: bool = True) -> DualEncoder:
        super().train(mode)
        for tower, rates in self._rates():
            if rates.trained == 0:
                tower.eval()
        return self

    def loss_parameters(self) -> dict[str, Tensor]:
        """Scale (its logarithm) and bias of the logits of a released model."""
        return {name: value.detach().squeeze() for name, value in self.towers.scales().items()}

    @torch.no_grad()
    def take_loss_parameters(self, learned: Mapping[str, Tensor]) -> None:
        """Store the learned scale and bias where a released model has them."""
        for name, value in self.towers.scales().items():
            if name in learned:
                value.copy_(learned[name].expand_as(value))

    def save_model(self, folder: Path, *, longest: int) -> None:
        """Write a folder of `transformers`: the released model with the weights as they are now, or two towers.

        longest: most ids of a caption. Only of towers that are models there, see `lacks_class`.
        """
        if isinstance(self.towers, JoinedTowers):
            save_towers(self.towers, folder, image_size=self._spec.image_size, longest=longest)
        else:
            assert isinstance(self.towers, WholeModel)
            save_whole(self.towers.body, folder, longest=longest, reads_padding=self.towers.reads_padding)

    def _rates(self) -> list[tuple[nn.Module, TowerRates]]:
        spec = self._spec
        text = TowerRates("text", spec.text_layers, spec.text_rate_factor, spec.layer_decay)
        image = TowerRates("image", spec.image_layers, spec.image_rate_factor, spec.layer_decay)
        both = ((self.towers.image, image), (self.towers.text, text))
        return [(tower, rates) for tower, rates in both if tower is not None]

    @staticmethod
    def _graph(layers: int | None) -> torch.no_grad | nullcontext[None]:
        """No graph for a frozen tower."""
        return torch.no_grad() if layers == 0 else nullcontext()


def _checkpoint_activations(tower: Any) -> None:
    if isinstance(tower, SmallTransformer):
        tower.are_checkpointed = True
        return
    # the library renamed the switch in its version 5
    switch = getattr(tower, "activation_checkpointing_enable", None) or tower.gradient_checkpointing_enable
    switch({"use_reentrant": False})
