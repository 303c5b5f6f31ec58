"""Networks: image and caption encoders and their similarity. No retrieval loss, no training. One folder per network:
`spec.py` (hyperparameters, source; no torch), `network.py`, and further modules of this network, such as the names of
released weights (`released.py`). `network_building.build_network` makes one.

Outside of vsetune every network is a class, and `named` makes one by its name in study files, also that of a plugin:

    network = vsetune.networks.VSEpp(width=2048, vocabulary_size=8000, embedding_size=512)
    images = network.encode_images(vsetune.ImageInputs(features, counts)).vectors    # (n, 1, 2048), (n,) -> (n, d)
"""

from typing import TYPE_CHECKING

from vsetune.lazy_names import lazy_names

if TYPE_CHECKING:
    from vsetune.networks.network_classes import (
        CGMN,
        GSMN,
        MSE,
        PCME,
        PVSE,
        SAF,
        SCAN,
        SGR,
        TAGS,
        VSRN,
        DualEncoder,
        MalaliKeller,
        VSEInfinity,
        VSEpp,
        named,
    )

__all__ = [
    "CGMN", "GSMN", "MSE", "PCME", "PVSE", "SAF", "SCAN", "SGR", "TAGS", "VSRN", "DualEncoder", "MalaliKeller",
    "VSEInfinity", "VSEpp", "named",
]

if not TYPE_CHECKING:  # torch is imported with the first network that is used
    __getattr__, __dir__ = lazy_names(__name__, {"vsetune.networks.network_classes": __all__})
