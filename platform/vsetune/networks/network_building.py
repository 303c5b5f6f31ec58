"""Builds a network from its spec."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from vsetune.config.component_specs import NETWORKS, NetworkSpec
from vsetune.config.registry import guarded
from vsetune.errors import ConfigError
from vsetune.networks.network_base import Network
from vsetune.networks.parts.text_transformer import Architecture, weights_follow

register = NETWORKS.builds
"""Class decorator: this network is built from that spec and the sizes of the data."""


def build_network(
    spec: NetworkSpec, *, regions: int, width: int, vocabulary_size: int, pretrained: bool = True,
    architecture: Architecture | None = None,
) -> Network:
    """A new network for features of (regions, width) per image; parameters sampled from torch's global generator.

    pretrained: False when a state dict is loaded next that replaces every parameter. Pre-trained weights are then not
    read, and with its `architecture` (see `weights_follow`) none of their files need to exist. ConfigError when the
    spec does not fit the data, or has no network, and where a plugin's code fails.
    """
    network: type[Network] = NETWORKS.class_of(type(spec))
    build: Callable[..., Network] = network
    sizes = sizes_of(network, spec, regions=regions, width=width, vocabulary_size=vocabulary_size)
    with nullcontext() if pretrained else weights_follow(architecture), guarded(type(spec)):
        return build(spec, **sizes)


def sizes_of(
    network: type[Network], spec: NetworkSpec, *, regions: int, width: int, vocabulary_size: int
) -> dict[str, int]:
    """The sizes of the data that the network's constructor takes. ConfigError for one below 1."""
    for name, size in (("regions", regions), ("width", width), ("vocabulary_size", vocabulary_size)):
        if size < 1 and (name != "width" or spec.reads.pixels is None):
            raise ConfigError(
                "VSE-N008", "network: {size} of the data is {got}, need at least 1; check the data set.", size=name,
                got=size,
            )
    sizes = {"width": width, "vocabulary_size": vocabulary_size}
    return sizes | ({"regions": regions} if network.needs_regions else {})
