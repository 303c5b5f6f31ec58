"""The loss or network that a reference names: a known one, or one in a folder or module."""

from __future__ import annotations

from pathlib import Path

from vsetune.config.components.catalogue import Catalogue, S
from vsetune.config.spec.base import unknown_name
from vsetune.errors import ConfigError, MissingPlugin, UsageError
from vsetune.losses.loss_catalogue import LOSSES
from vsetune.losses.loss_spec import LossSpec
from vsetune.networks.network_catalogue import NETWORKS
from vsetune.networks.network_spec import NetworkSpec
from vsetune.plugins.plugin_loading import load_plugin


def loss_at(reference: str | Path) -> type[LossSpec]:
    """The loss of this name, of this folder (relative to the current one), or of this importable module.

    UsageError for an unknown name, ConfigError for a folder that has no component or not exactly one loss.
    """
    return _component_at(str(reference), LOSSES)


def network_at(reference: str | Path) -> type[NetworkSpec]:
    """The network of a reference, as `loss_at`."""
    return _component_at(str(reference), NETWORKS)


def _component_at(reference: str, known: Catalogue[S]) -> type[S]:
    if reference in known:
        return known[reference]
    try:
        plugins = load_plugin(reference, base=Path.cwd())
    except MissingPlugin as error:
        if reference.isidentifier():
            raise UsageError(f"{unknown_name(reference, sorted(known), known.kind)}, or a folder") from error
        raise
    names = [plugin.name for plugin in plugins if plugin.kind == known.kind]
    if len(names) != 1:
        found = ", ".join(f"{plugin.kind} {plugin.name} in {plugin.folder}" for plugin in plugins)
        raise ConfigError(f"{reference}: need the folder of one {known.kind}, got {found}; name its folder")
    return known[names[0]]
