"""The kinds of machines of a cluster, from the file that made it: `cluster.yaml` or a RayCluster manifest.

Ray gives a driver no list of the nodes that its autoscaler could add. The file has it: $VSETUNE_CLUSTER names the file,
and on the head node of Ray's launcher it is `~/ray_bootstrap_config.yaml`. Without a file only existing nodes count:
the cluster may change, but trials do not wait for nodes that are not there.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsetune.config.spec.yaml_files import read_yaml
from vsetune.config.study.resources import Needs, copies_that_fit
from vsetune.errors import ConfigError

CLUSTER_VARIABLE = "VSETUNE_CLUSTER"
PRICE_LABEL = "vsetune.io/usd-per-hour"
TYPE_LABELS = ("vsetune.io/node-type", "ray.io/node-group")
"""The second is KubeRay's label of the pods of a group."""
_OF_THE_LAUNCHER = Path("~/ray_bootstrap_config.yaml")
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "m": 1e-3, "": 1}


class _Wrong(ValueError):
    """An invalid entry. The message gives the key, the value found and the value needed."""


@dataclass(frozen=True)
class NodeType:
    """One kind of node. resources: amounts by Ray's names; memory is infinite if the file does not give it.

    most: number of such nodes that there can be at once. usd_per_hour: None if the file does not give it.
    """

    name: str
    resources: Mapping[str, float]
    most: int
    usd_per_hour: float | None

    def __str__(self) -> str:
        amounts = [f"{self.resources.get('CPU', 0):g} CPUs", f"{self.resources.get('GPU', 0):g} GPUs"]
        if math.isfinite(self.resources.get("memory", math.inf)):
            amounts.append(f"{self.resources['memory'] / 2**30:.3g} GiB")
        amounts += [key.partition(":")[2] for key in self.resources if key.startswith("accelerator_type:")]
        return f"{self.name} ({', '.join(amounts)})"


def type_of(labels: Mapping[str, str]) -> str:
    """The type of a node with these labels; empty if none of them gives it."""
    return next((labels[name] for name in TYPE_LABELS if labels.get(name)), "")


def share_of(node: Mapping[str, float], needs: Needs) -> float:
    """The share of a node that a trial occupies: of its cores or its GPUs, whichever is larger; at most 1.

    node: amounts by Ray's names.
    """
    cpus, gpus = node.get("CPU", 0.0), node.get("GPU", 0.0)
    return min(1.0, max(needs.cpus / cpus if cpus else 1.0, needs.gpus / gpus if gpus else 0.0))


def known_node_types() -> list[NodeType]:
    """The node types of the cluster's file; none without a file. ConfigError for a file that cannot be understood."""
    given = os.environ.get(CLUSTER_VARIABLE)
    file = Path(given).expanduser() if given else _OF_THE_LAUNCHER.expanduser()
    if not given and not file.exists():
        return []
    return read_node_types(file)


def read_node_types(file: Path) -> list[NodeType]:
    """Node types of a file of Ray's launcher, or of a RayCluster or RayJob. ConfigError of one line if it cannot be
    read or understood."""
    plain = read_yaml(file)
    try:
        found = list(_of_the_launcher(plain) if "available_node_types" in plain else _of_kuberay(plain))
    except _Wrong as error:
        raise ConfigError(f"{file}: cannot be understood as a cluster ({error})") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be understood as a cluster ({type(error).__name__}: {error})") from error
    if not found:
        raise ConfigError(
            f"{file}: names no node types; need `available_node_types` of Ray's launcher or a RayCluster manifest"
        )
    return found


def refused(needs: Needs, types: Iterable[NodeType], nodes: Iterable[Mapping[str, float]]) -> str | None:
    """Why a trial can never be placed, as text that follows `asks for`; None if a node or a type has room for it."""
    types, nodes = list(types), list(nodes)
    if any(copies_that_fit(kind.resources, needs) for kind in types if kind.most):
        return None
    if any(copies_that_fit(node, needs) for node in nodes):
        return None
    if types:
        return f"{needs}; no node type has room for it: {'; '.join(map(str, types))}"
    there = "; ".join(dict.fromkeys(_beside(node, needs) for node in nodes)) or "none"
    return f"{needs}; the nodes of the cluster have: {there}"


def unused_gpus(needs: Iterable[Needs], nodes: Iterable[Mapping[str, float]]) -> list[str]:
    """A line if nodes have GPUs and no trial uses one, with the setting for the study file; else none.

    needs: of every cell. nodes: amounts by Ray's names.
    """
    gpus = sum(node.get("GPU", 0.0) for node in nodes)
    if not gpus or any(each.gpus for each in needs):
        return []
    there = "a GPU is" if gpus == 1 else f"{gpus:g} GPUs are"
    return [
        f"trials train on CPUs (resources.gpus: 0), and {there} not used; to train there, write in the study file "
        "`resources: {gpus: 1}`, or a fraction such as 0.5 for two trials on a GPU"
    ]


def _beside(node: Mapping[str, float], needs: Needs) -> str:
    """The resources of a node that a trial asks for, as text; cores and GPUs are always listed."""
    words = [f"{node.get('CPU', 0):g} CPUs", f"{node.get('GPU', 0):g} GPUs"]
    words += [f"{node.get('memory', 0) / 2**30:.3g} GiB memory"] if needs.memory_gib else []
    if needs.accelerator:
        words += [key.partition(":")[2] for key in node if key.startswith("accelerator_type:")] or ["no accelerator"]
    return ", ".join(words)


def _of_the_launcher(plain: Mapping[str, Any]) -> Iterator[NodeType]:
    most = _count(plain.get("max_workers", 2), "max_workers")
    head = plain.get("head_node_type")
    for name, kind in _mapping(plain["available_node_types"], "available_node_types", "node types").items():
        where = f"available_node_types.{name}"
        kind = _mapping(kind, where, "its settings")
        resources = _mapping(kind.get("resources") or {}, f"{where}.resources", "amounts")
        amounts = {key: _number(amount, f"{where}.resources.{key}") for key, amount in resources.items()}
        limit = 1 if name == head else min(most, _count(kind.get("max_workers", most), f"{where}.max_workers"))
        labels = _mapping(kind.get("labels") or {}, f"{where}.labels", "values")
        yield NodeType(name, {"memory": math.inf} | amounts, limit, _price(labels.get(PRICE_LABEL), where))


def _of_kuberay(plain: Mapping[str, Any]) -> Iterator[NodeType]:
    if "spec" not in plain:
        raise _Wrong("need `available_node_types` of Ray's launcher, or the `spec` of a RayCluster")
    spec = plain["spec"]
    spec = spec.get("rayClusterSpec", spec)
    for group in spec.get("workerGroupSpecs", []):
        container = group["template"]["spec"]["containers"][0]
        limits = container.get("resources", {}).get("limits", {})
        parameters = group.get("rayStartParams") or {}
        name = group["groupName"]
        cpus = parameters.get("num-cpus", limits.get("cpu", 0))
        gpus = parameters.get("num-gpus", limits.get("nvidia.com/gpu", 0))
        resources = {"memory": math.inf, "CPU": _amount(cpus, f"{name}.num-cpus or limits.cpu")}
        resources["GPU"] = _amount(gpus, f"{name}.num-gpus or limits.nvidia.com/gpu")
        if "memory" in limits:  # without the share that Ray reserves for its object store
            resources["memory"] = 0.7 * _amount(limits["memory"], f"{name}.limits.memory")
        labels = group.get("labels") or {}
        accelerator = labels.get("ray.io/accelerator-type")
        if accelerator:
            resources[f"accelerator_type:{accelerator}"] = 1.0
        most = _count(group.get("maxReplicas", 1), f"{name}.maxReplicas")
        yield NodeType(name, resources, most, _price(labels.get(PRICE_LABEL), name))


def _price(text: Any, where: str) -> float | None:
    if text is None:
        return None
    where = f"{where}.labels.{PRICE_LABEL}"
    price = _number(text, where, need="dollars per hour")
    if price >= 1e6:
        raise _Wrong(f"{where}: got {text!r}, need dollars per hour")
    return price


def _amount(text: Any, where: str) -> float:
    """Parses a quantity in Kubernetes's notation: 4, "500m", "16Gi"."""
    words = str(text)
    unit = next(unit for unit in sorted(_UNITS, key=len, reverse=True) if words.endswith(unit))
    try:
        amount = float(words.removesuffix(unit)) * _UNITS[unit]
    except ValueError:
        amount = math.nan
    return _number(text if math.isnan(amount) else amount, where, need='an amount such as 4, "500m" or "16Gi"')


def _number(given: Any, where: str, need: str = "a number >= 0") -> float:
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise _Wrong(f"{where}: got {given!r}, need {need}")
    return number


def _count(given: Any, where: str) -> int:
    number = _number(given, where, need="a whole number >= 0")
    if number != int(number):
        raise _Wrong(f"{where}: got {given!r}, need a whole number >= 0")
    return int(number)


def _mapping(given: Any, where: str, what: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        kind = "a list" if isinstance(given, list) else "a number" if isinstance(given, int | float) else "a text"
        raise _Wrong(f"{where}: got {kind}, need {what} by their names")
    return given
