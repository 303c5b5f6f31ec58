"""Plugin code that a trial is made of: sha256 by key (`loss.my_loss`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vsetune.config.spec.base import Spec
from vsetune.losses.loss_catalogue import LOSSES
from vsetune.losses.loss_spec import LossSpec
from vsetune.losses.weighted_sum.sum_spec import SUM, SumSpec
from vsetune.networks.network_catalogue import NETWORKS
from vsetune.networks.network_spec import NetworkSpec
from vsetune.plugins.plugin_loading import plugin_of


def plugins_in(network: Mapping[str, Any], loss: Mapping[str, Any]) -> dict[str, str]:
    """Plugins of a network and a loss in plain data; their names may be unknown."""
    losses = [part["loss"] for part in loss["parts"].values()] if loss.get("name") == SUM else [loss]
    specs = [NETWORKS.get(str(network.get("name"))), *(LOSSES.get(str(each.get("name"))) for each in losses)]
    return _of(spec for spec in specs if spec is not None)


def plugins_of(network: NetworkSpec, loss: LossSpec) -> dict[str, str]:
    """Plugins of the network and the loss of a trial."""
    losses = [part.loss for part in loss.parts.values()] if isinstance(loss, SumSpec) else [loss]
    return _of(type(each) for each in (network, *losses))


def _of(specs: Iterable[type[Spec]]) -> dict[str, str]:
    plugins = [plugin_of(spec) for spec in specs]
    return {plugin.key: plugin.sha256 for plugin in plugins if plugin is not None}
