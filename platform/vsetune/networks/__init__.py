"""Networks: image and caption encoders and their similarity. No retrieval loss, no training. One folder per network:
`spec.py` (hyperparameters, source; no torch), `network.py`, and further modules of this network, such as the names of
released weights (`released.py`). `network_building.build_network` makes one.

Outside of vsetune, `vsetune.networks.NAME(width=..., vocabulary_size=...)` makes one, see `plain_network`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsetune.config.callable_modules import components_by_name

if TYPE_CHECKING:
    from vsetune.networks.network_base import Network

    cgmn: Callable[..., Network]
    dual_encoder: Callable[..., Network]
    gsmn: Callable[..., Network]
    malali_keller: Callable[..., Network]
    mse: Callable[..., Network]
    pcme: Callable[..., Network]
    pvse: Callable[..., Network]
    scan: Callable[..., Network]
    sgraf_saf: Callable[..., Network]
    sgraf_sgr: Callable[..., Network]
    tags: Callable[..., Network]
    vse_infinity: Callable[..., Network]
    vsepp: Callable[..., Network]
    vsrn: Callable[..., Network]


def _maker(name: str) -> Callable[..., Any]:
    """The function that makes the network of a name."""

    def make(**settings: Any) -> Network:
        from vsetune.networks.plain_network import plain_network

        return plain_network(name, **settings)

    make.__doc__ = (
        f"`vsetune.networks.{name}(width=..., vocabulary_size=..., **settings)` makes this network as a torch module: "
        f"`help(vsetune.Network)` says how to call it, `vsetune networks show {name}` prints its settings."
    )
    return make


def _names() -> Iterable[str]:
    from vsetune.config.component_specs import NETWORKS

    return NETWORKS


__getattr__, __dir__ = components_by_name(__name__, Path(__file__).parent, names=_names, maker=_maker)
