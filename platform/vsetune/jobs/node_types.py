"""The kinds of machines a cluster may have, from the file that made it: `cluster.yaml` or a RayCluster manifest.

Ray does not tell a driver what its autoscaler could add. The file does: $VSETUNE_CLUSTER names it, and on the head node
of Ray's launcher it is `~/ray_bootstrap_config.yaml`. Without one the cluster counts as it is: it may change, but
nothing is waited for that is not there.
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
"""The second is what KubeRay gives the pods of a group."""
_OF_THE_LAUNCHER = Path("~/ray_bootstrap_config.yaml")
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "m": 1e-3, "": 1}


@dataclass(frozen=True)
class NodeType:
    """One kind of node. resources: amounts by Ray's names; endless memory where the file does not say how much.

    most: nodes of it there can be at once. usd_per_hour: None where the file does not say.
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
    """The type of a node with these labels; empty where none of them says."""
    return next((labels[name] for name in TYPE_LABELS if labels.get(name)), "")


def share_of(node: Mapping[str, float], needs: Needs) -> float:
    """The part of a node that a trial keeps from others: of its cores or its GPUs, whichever is more; at most 1.

    node: amounts by Ray's names.
    """
    cpus, gpus = node.get("CPU", 0.0), node.get("GPU", 0.0)
    return min(1.0, max(needs.cpus / cpus if cpus else 1.0, needs.gpus / gpus if gpus else 0.0))


def known_node_types() -> list[NodeType]:
    """Of the file that is there; none without one. ConfigError for a file that cannot be understood."""
    given = os.environ.get(CLUSTER_VARIABLE)
    file = Path(given).expanduser() if given else _OF_THE_LAUNCHER.expanduser()
    if not given and not file.exists():
        return []
    return read_node_types(file)


def read_node_types(file: Path) -> list[NodeType]:
    """Node types of Ray's launcher or of a RayCluster or RayJob. ConfigError in one line, or when it cannot be read."""
    plain = read_yaml(file)
    try:
        found = list(_of_the_launcher(plain) if "available_node_types" in plain else _of_kuberay(plain))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be understood as a cluster ({type(error).__name__}: {error})") from error
    if not found:
        raise ConfigError(
            f"{file}: names no node types; need `available_node_types` of Ray's launcher or a RayCluster manifest"
        )
    return found


def refused(needs: Needs, types: Iterable[NodeType], nodes: Iterable[Mapping[str, float]]) -> str | None:
    """Why a trial can never be placed, in words that follow `asks for`; None where a node or a type has room for it."""
    types, nodes = list(types), list(nodes)
    if any(copies_that_fit(kind.resources, needs) for kind in types if kind.most):
        return None
    if any(copies_that_fit(node, needs) for node in nodes):
        return None
    if types:
        return f"{needs}; no node type has room for it: {'; '.join(map(str, types))}"
    there = "; ".join(f"{node.get('CPU', 0):g} CPUs, {node.get('GPU', 0):g} GPUs" for node in nodes) or "none"
    return f"{needs}; the nodes of the cluster have: {there}"


def _of_the_launcher(plain: Mapping[str, Any]) -> Iterator[NodeType]:
    most = int(plain.get("max_workers", 2))
    head = plain.get("head_node_type")
    for name, kind in plain["available_node_types"].items():
        labels = kind.get("labels") or {}
        limit = 1 if name == head else min(most, int(kind.get("max_workers", most)))
        yield NodeType(
            name, {"memory": math.inf} | {key: float(amount) for key, amount in (kind.get("resources") or {}).items()},
            limit,
            _price(labels.get(PRICE_LABEL), name),
        )


def _of_kuberay(plain: Mapping[str, Any]) -> Iterator[NodeType]:
    spec = plain["spec"]
    spec = spec.get("rayClusterSpec", spec)
    for group in spec.get("workerGroupSpecs", []):
        container = group["template"]["spec"]["containers"][0]
        limits = container.get("resources", {}).get("limits", {})
        parameters = group.get("rayStartParams") or {}
        resources = {"memory": math.inf, "CPU": _amount(parameters.get("num-cpus", limits.get("cpu", 0)))}
        resources["GPU"] = _amount(parameters.get("num-gpus", limits.get("nvidia.com/gpu", 0)))
        if "memory" in limits:
            resources["memory"] = 0.7 * _amount(limits["memory"])  # what Ray leaves beside its object store
        labels = group.get("labels") or {}
        accelerator = labels.get("ray.io/accelerator-type")
        if accelerator:
            resources[f"accelerator_type:{accelerator}"] = 1.0
        name = group["groupName"]
        yield NodeType(name, resources, int(group.get("maxReplicas", 1)), _price(labels.get(PRICE_LABEL), name))


def _price(text: Any, name: str) -> float | None:
    if text is None:
        return None
    price = float(text)
    if not 0 <= price < 1e6:
        raise ValueError(f"{name}: {PRICE_LABEL} is {text}, need dollars per hour")
    return price


def _amount(text: Any) -> float:
    """A quantity as Kubernetes writes it: 4, "500m", "16Gi"."""
    words = str(text)
    unit = next(unit for unit in sorted(_UNITS, key=len, reverse=True) if words.endswith(unit))
    return float(words.removesuffix(unit)) * _UNITS[unit]
