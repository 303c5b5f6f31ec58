"""Every network as an ordinary torch module for other people's training loops."""

from __future__ import annotations

from typing import Any

from vsetune.config.component_specs import NETWORKS
from vsetune.config.spec.base import unknown_name
from vsetune.config.spec.loading import parse_spec
from vsetune.errors import ConfigError
from vsetune.networks.network_base import Network
from vsetune.networks.network_building import build_network


def plain_network(name: str, *, width: int, vocabulary_size: int, regions: int = 1, **settings: Any) -> Network:
    """The network of this name in study files, with fresh weights from torch's global generator.

    width: numbers per region of the image features. vocabulary_size: number of word ids, from 0 (padding). regions: of
    an image. settings: hyperparameters; the others have their defaults. ConfigError lists every wrong setting.

    Example:
        network = vsetune.networks.vsepp(width=2048, vocabulary_size=8000, embedding_size=512)
        images = network.encode_images(vsetune.ImageInputs(features, counts)).vectors    # (n, 1, 2048), (n,) -> (n, d)
    """
    if name not in NETWORKS:
        raise ConfigError(unknown_name(name, sorted(NETWORKS), kind="network"))
    spec = parse_spec({"name": name, **settings}, NETWORKS[name], where=f"vsetune.networks.{name}")
    return build_network(spec, regions=regions, width=width, vocabulary_size=vocabulary_size)
