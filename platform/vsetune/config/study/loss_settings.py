"""Settings of a loss as plain data, by dotted name, and the plugin code that a trial is made of."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from typing import Any

from vsetune.config.component_specs import LOSSES, NETWORKS, SUM, LossSpec, NetworkSpec
from vsetune.config.plugins import plugin_of
from vsetune.config.spec.base import Spec
from vsetune.errors import Problem


def terms_in(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The losses of plain data by their label in a sum; a single loss has an empty label."""
    is_sum = plain.get("name") == SUM
    return {label: part["loss"] for label, part in plain["parts"].items()} if is_sum else {"": plain}


def with_settings(plain: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with these settings; of a sum they are grouped by part: `{lmh: {margin: 0.1, weight: 2}}`.

    ValueError when a sum has no such part.
    """
    changed = copy.deepcopy(dict(plain))
    if changed["name"] != SUM:
        return changed | dict(changes)
    for part, settings in changes.items():
        if part not in changed["parts"] or not isinstance(settings, Mapping):
            raise ValueError(Problem.of(
                "VSE-C043", "got {got}, need settings grouped by the parts of the sum: {parts}", got=part,
                parts=", ".join(changed["parts"]),
            ))
        term = changed["parts"][part]
        for field, value in settings.items():
            (term if field == "weight" else term["loss"])[field] = value
    return changed


def specs_of_loss(plain: Mapping[str, Any], above: tuple[str, ...]) -> list[tuple[tuple[str, ...], type[LossSpec]]]:
    """(place in plain data, spec) of a loss, or of every term of a sum."""
    return [
        ((*above, "parts", label, "loss") if label else above, LOSSES[each["name"]])
        for label, each in terms_in(plain).items()
    ]


def as_settings(text: str) -> str:
    """Error text with settings of a sum's parts under the names that study files use: `loss.lmh.margin`."""
    return re.sub(r"\bloss\.parts\.([\w-]+)\.(?:loss\.)?", r"loss.\1.", text)


def plugins_in(network: Mapping[str, Any], loss: Mapping[str, Any]) -> dict[str, str]:
    """Plugins of a network and a loss in plain data; their names may be unknown."""
    losses = (LOSSES.get(str(each.get("name"))) for each in terms_in(loss).values())
    return _of(spec for spec in (NETWORKS.get(str(network.get("name"))), *losses) if spec is not None)


def plugins_of(network: NetworkSpec, loss: LossSpec) -> dict[str, str]:
    """Plugins of the network and the loss of a trial."""
    return _of(type(each) for each in (network, *loss.terms().values()))


def _of(specs: Iterable[type[Spec]]) -> dict[str, str]:
    plugins = [plugin_of(spec) for spec in specs]
    return {plugin.key: plugin.sha256 for plugin in plugins if plugin is not None}
