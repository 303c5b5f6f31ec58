"""Settings of a loss as plain data, by dotted name, and the plugin code that a trial is made of."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from typing import Any

from vsetune.config.component_specs import LOSSES, NETWORKS, SUM, LossSpec, NetworkSpec, SumSpec
from vsetune.config.plugins import plugin_of
from vsetune.config.spec.base import Spec


def loss_type(plain: Mapping[str, Any]) -> type[LossSpec]:
    """The spec class of a loss in plain data."""
    return SumSpec if plain["name"] == SUM else LOSSES[plain["name"]]


def with_setting(plain: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """A copy in which the setting `name` has this value."""
    part, _, field = name.rpartition(".")
    return with_settings(plain, {part: {field: value}} if part else {name: value})


def with_settings(plain: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with these settings; of a sum they are grouped by part: `{lmh: {margin: 0.1, weight: 2}}`.

    ValueError when a sum has no such part.
    """
    changed = copy.deepcopy(dict(plain))
    if changed["name"] != SUM:
        return changed | dict(changes)
    for part, settings in changes.items():
        if part not in changed["parts"] or not isinstance(settings, Mapping):
            raise ValueError(
                f"got {part}, need settings grouped by the parts of the sum: {', '.join(changed['parts'])}"
            )
        term = changed["parts"][part]
        for field, value in settings.items():
            (term if field == "weight" else term["loss"])[field] = value
    return changed


def setting(spec: LossSpec, name: str) -> Any:
    """The value of the setting `name`."""
    part, _, field = name.rpartition(".")
    if not isinstance(spec, SumSpec):
        return getattr(spec, name)
    term = spec.parts[part]
    return term.weight if field == "weight" else getattr(term.loss, field)


def loss_settings_of(plain: Mapping[str, Any]) -> set[str]:
    """Names of all settings of a loss, or of the parts of a sum."""
    losses = [part["loss"] for part in plain["parts"].values()] if plain["name"] == SUM else [plain]
    return {name for loss in losses for name in LOSSES[loss["name"]].model_fields}


def as_settings(text: str) -> str:
    """Error text with settings of a sum's parts under the names that study files use: `loss.lmh.margin`."""
    return re.sub(r"\bloss\.parts\.([\w-]+)\.(?:loss\.)?", r"loss.\1.", text)


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
