"""Networks: image and caption encoders and their similarity. No retrieval loss, no training."""

from vsetune.networks import (  # noqa: F401  they register
    cgmn,
    gsmn,
    malali_keller,
    mse,
    pcme,
    pvse,
    scan,
    sgraf,
    vse_infinity,
    vsepp,
    vsrn,
)
from vsetune.networks.encoded import Encoded, joined
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network import Network, TrainingItems
from vsetune.networks.registry import build_network

__all__ = [
    "CaptionInputs", "Encoded", "ImageInputs", "Network", "TrainingItems", "build_network", "joined",
]
