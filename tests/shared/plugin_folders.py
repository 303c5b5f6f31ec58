"""Somebody's own loss and network, written into a folder as a person would."""

from __future__ import annotations

import textwrap
from pathlib import Path

SPEC = '''
from __future__ import annotations

from typing import ClassVar, Literal

from vsetune.config.spec.base import Range, tunable
from vsetune.config.component_specs import LossSpec


class HalfHingeSpec(LossSpec):
    """Half of the hinges: only images look for captions."""

    equation: ClassVar[str] = "sum_i max_{j != i} [margin + S_ij - S_ii]+"
    source: ClassVar[str] = "made for a test"

    name: Literal["half_hinge"] = "half_hinge"
    margin: float = tunable(0.2, Range(low=0.1, high=0.4), ge=0, description="alpha, in units of similarity")
'''

LOSS = '''
from __future__ import annotations

from vsetune.losses.loss_base import Loss, LossInputs, LossOutput
from vsetune.losses.loss_building import register

from .negatives import hardest
from .spec import HalfHingeSpec


@register(HalfHingeSpec)
class HalfHinge(Loss):
    def __init__(self, spec: HalfHingeSpec) -> None:
        super().__init__(warmup_epochs=0)
        self.spec = spec

    def forward(self, inputs: LossInputs) -> LossOutput:
        similarity = inputs.similarity
        hinges = (self.spec.margin + hardest(similarity) - similarity.diagonal()).relu()
        return LossOutput(value=hinges.mean(), parts={"active": (hinges.detach() > 0).float().mean()})
'''

NEGATIVES = '''
from __future__ import annotations

import torch
from torch import Tensor


def hardest(similarity: Tensor) -> Tensor:
    own = torch.eye(len(similarity), dtype=torch.bool, device=similarity.device)
    return similarity.masked_fill(own, -1.0).amax(dim=1)
'''

NETWORK_SPEC = '''
from __future__ import annotations

from typing import ClassVar, Literal

from vsetune.config.spec.base import Choices, tunable
from vsetune.config.component_specs import NetworkSpec


class BagSpec(NetworkSpec):
    """Mean of the regions, mean of the words."""

    source: ClassVar[str] = "made for a test"

    name: Literal["bag"] = "bag"
    embedding_size: int = tunable(16, Choices(choices=[8, 16]), ge=1, description="D, size of the joint space")
'''

NETWORK = '''
from __future__ import annotations

from torch import nn

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network, unit_length
from vsetune.networks.network_building import register

from .spec import BagSpec


@register(BagSpec)
class Bag(Network):
    def __init__(self, spec: BagSpec, *, width: int, vocabulary_size: int) -> None:
        super().__init__(spec)
        self.project = nn.Linear(width, spec.embedding_size)
        self.words = nn.EmbeddingBag(vocabulary_size, spec.embedding_size, padding_idx=0)

    def encode_images(self, images: ImageInputs) -> Encoded:
        return Encoded(unit_length(self.project(images.features.sum(dim=1) / images.counts[:, None])))

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        return Encoded(unit_length(self.words(captions.tokens)))
'''


def write_loss(folder: Path, **changed: str) -> Path:
    """The folder of a loss. changed: text of a file by its name without `.py`."""
    return write_files(folder, {"spec": SPEC, "loss": LOSS, "negatives": NEGATIVES} | changed)


def write_network(folder: Path, **changed: str) -> Path:
    """The folder of a network."""
    return write_files(folder, {"spec": NETWORK_SPEC, "network": NETWORK} | changed)


def write_files(folder: Path, texts: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return folder
