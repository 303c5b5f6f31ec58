"""Networks: image and caption encoders and their similarity. No retrieval loss, no training. One folder per network:
`spec.py` (hyperparameters, source; no torch), `network.py`, and further modules of this network, such as the names of
released weights (`released.py`). `network_building.build_network` makes one.

Outside of vsetune, `vsetune.networks.NAME(width=..., vocabulary_size=...)` makes one, see `plain_network`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsetune.config.callable_modules import make_callable, submodule

if TYPE_CHECKING:
    from vsetune.networks.network_base import Network

    cgmn: Callable[..., Network]
    gsmn: Callable[..., Network]
    malali_keller: Callable[..., Network]
    mse: Callable[..., Network]
    pcme: Callable[..., Network]
    pvse: Callable[..., Network]
    scan: Callable[..., Network]
    sgraf: Callable[..., Network]
    tags: Callable[..., Network]
    vse_infinity: Callable[..., Network]
    vsepp: Callable[..., Network]
    vsrn: Callable[..., Network]


def _maker(name: str) -> Callable[..., Any] | None:
    """The function that makes the network of a folder; None for a module that is no network."""

    def make(**settings: Any) -> Network:
        from vsetune.networks.plain_network import plain_network

        return plain_network(name, **settings)

    return make if (Path(__file__).parent / name / "spec.py").is_file() else None


def __getattr__(name: str) -> Any:
    return submodule(__name__, name)


def __dir__() -> list[str]:
    return sorted(each.parent.name for each in Path(__file__).parent.glob("*/spec.py"))


make_callable(__name__, _maker)
