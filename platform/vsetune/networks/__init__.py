"""Networks: image and caption encoders and their similarity. No loss, no training."""

from __future__ import annotations

from vsetune.config.networks import NetworkSpec, VseInfinitySpec, VseppSpec
from vsetune.errors import ConfigError
from vsetune.networks.network import Network
from vsetune.networks.vse_infinity import VseInfinity
from vsetune.networks.vsepp import Vsepp

__all__ = ["Network", "build_network"]


def build_network(spec: NetworkSpec, *, regions: int, width: int, vocabulary_size: int) -> Network:
    """A new network for features of (regions, width) per image; parameters drawn from torch's global generator.

    ConfigError when the spec does not fit the data.
    """
    for name, size in (("regions", regions), ("width", width), ("vocabulary_size", vocabulary_size)):
        if size < 1:
            raise ConfigError(f"network: {name} of the data is {size}, need at least 1; check the data set.")
    if isinstance(spec, VseppSpec):
        return Vsepp(spec, regions=regions, width=width, vocabulary_size=vocabulary_size)
    if isinstance(spec, VseInfinitySpec):
        return VseInfinity(spec, width=width, vocabulary_size=vocabulary_size)
    raise TypeError(f"no network is built from {type(spec).__name__}")
