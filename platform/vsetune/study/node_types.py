"""The kinds of machines of a cluster, from the file that made it: `cluster.yaml` or a RayCluster manifest.

Ray gives a driver no list of the nodes that its autoscaler could add. The file has it: $VSETUNE_CLUSTER names the file,
and on the head node of Ray's launcher it is `~/ray_bootstrap_config.yaml`. Without a file only existing nodes count:
the cluster may change, but trials do not wait for nodes that are not there.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import psutil
from pydantic import AliasChoices, AliasPath, BaseModel, BeforeValidator, Field, ValidationError

from vsetune.config.spec.loading import describe_problems, read_yaml
from vsetune.config.study.resources import Needs, copies_that_fit, trials_that_fit
from vsetune.errors import ConfigError, Problem

CLUSTER_VARIABLE = "VSETUNE_CLUSTER"
PRICE_LABEL = "vsetune.io/usd-per-hour"
TYPE_LABELS = ("vsetune.io/node-type", "ray.io/node-group")
"""The second is KubeRay's label of the pods of a group."""
_OF_THE_LAUNCHER = Path("~/ray_bootstrap_config.yaml")
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "m": 1e-3, "": 1}
THIS_MACHINE = "this machine"
RAYS_SHARE = 0.7
"""Share of memory that Ray leaves for trials; the rest is its object store."""


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


def own_cpus() -> int:
    """Cores that this process may use: of its CPU set, and within the limit of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [tuple(text.split()) for text in _in_cgroups("", "cpu.max")]
    limits += zip(_in_cgroups("cpu", "cpu.cfs_quota_us"), _in_cgroups("cpu", "cpu.cfs_period_us"), strict=False)
    return max(1, math.floor(min([cores, *(_limit(quota) / float(period) for quota, period in limits)])))


def own_memory() -> tuple[float, float]:
    """(all, available) bytes of memory of this machine, within the limit of the container of this process."""
    machine = psutil.virtual_memory()
    total, free = float(machine.total), float(machine.available)
    for controller, most, used, prefix in (
        ("", "memory.max", "memory.current", ""),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ):
        texts = (_in_cgroups(controller, name) for name in (most, used, "memory.stat"))
        for limit, usage, stat in zip(*texts, strict=False):
            cached = sum(int(n) for name, n in map(str.split, stat.splitlines()) if name in (
                f"{prefix}inactive_file", f"{prefix}active_file",
            ))
            total, free = min(total, _limit(limit)), min(free, _limit(limit) - int(usage) + cached)
    return total, max(0.0, free)


_CGROUPS, _OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def _in_cgroups(controller: str, file: str) -> list[str]:
    """The contents of a file in every control group that this process is in, from its own up to the root, of those that
    are visible here. controller: empty for version 2."""
    try:
        lines = [line.split(":", 2) for line in _OWN_CGROUPS.read_text(encoding="ascii").splitlines()]
    except OSError:
        return []
    own = next((Path(path) for _, names, path in lines if controller in names.split(",")), Path("/"))
    folders = (_CGROUPS / controller / each.relative_to("/") for each in (own, *own.parents))
    return [(folder / file).read_text(encoding="ascii") for folder in folders if (folder / file).is_file()]


def _limit(text: str) -> float:
    """`max` and a negative number are no limit."""
    number = math.inf if text.strip() == "max" else float(text)
    return number if number >= 0 else math.inf


def this_machine() -> NodeType:
    """This machine with the resources that Ray would find here."""
    resources = {"CPU": float(own_cpus()), "memory": RAYS_SHARE * own_memory()[1]}
    if _has_driver_of_gpus():
        resources |= _gpus()
    return NodeType(THIS_MACHINE, resources, most=1, usd_per_hour=None)


def _has_driver_of_gpus() -> bool:
    """Whether torch could find a GPU here. Loading torch to ask takes longer than all else that a command asks of this
    machine, so a Linux without a driver's device (NVIDIA, its WSL, AMD) does not ask."""
    if not sys.platform.startswith("linux"):
        return True
    return any(Path("/dev").glob("nvidia*")) or any(Path(device).exists() for device in ("/dev/dxg", "/dev/kfd"))


def _gpus() -> dict[str, float]:
    """The GPUs that torch finds, by Ray's names."""
    import torch

    resources = {}
    if torch.cuda.is_available():
        resources["GPU"] = float(torch.cuda.device_count())
        for word in torch.cuda.get_device_name().replace("-", " ").split():
            resources[f"accelerator_type:{word}"] = 1.0  # Ray names one of them
    return resources


def type_of(labels: Mapping[str, str]) -> str:
    """The type of a node with these labels; empty if none of them gives it."""
    return next((labels[name] for name in TYPE_LABELS if labels.get(name)), "")


def share_of(node: Mapping[str, float], needs: Needs) -> float:
    """The share of a node that a trial occupies: of its cores or its GPUs, whichever is larger; at most 1.

    node: amounts by Ray's names.
    """
    cpus, gpus = node.get("CPU", 0.0), node.get("GPU", 0.0)
    return min(1.0, max(needs.cpus / cpus if cpus else 1.0, needs.gpus / gpus if gpus else 0.0))


def occupy(node: dict[str, float], needs: Needs, *, count: int = 1) -> None:
    """Takes the resources of this many trials from a node; a negative count gives them back."""
    for name, amount in (("CPU", needs.cpus), ("GPU", needs.gpus), ("memory", needs.memory_gib * 2**30)):
        node[name] = node.get(name, 0.0) - count * amount


def known_node_types() -> list[NodeType]:
    """The node types of the cluster's file; none without a file. ConfigError for a file that cannot be understood."""
    given = os.environ.get(CLUSTER_VARIABLE)
    file = Path(given).expanduser() if given else _OF_THE_LAUNCHER.expanduser()
    if not given and not file.exists():
        return []
    return read_node_types(file)


def read_node_types(file: Path) -> list[NodeType]:
    """Node types of a file of Ray's launcher, or of a RayCluster or RayJob. ConfigError with every problem of it."""
    plain = read_yaml(file)
    try:
        found = list(_of_the_launcher(plain) if "available_node_types" in plain else _of_kuberay(plain))
    except ValidationError as error:
        raise ConfigError(describe_problems(error, where=str(file))) from error
    if not found:
        raise ConfigError(
            "VSE-S039", "{file}: names no node types; need `available_node_types` of Ray's launcher, or the `spec` of "
            "a RayCluster with worker groups", file=file,
        )
    return found


def refused(needs: Needs, types: Iterable[NodeType], nodes: Iterable[Mapping[str, float]]) -> str | None:
    """Why a trial can never be placed, as text that follows `asks for`; None if the nodes, or those that the types
    allow, have room for it."""
    types, nodes = list(types), list(nodes)
    if trials_that_types_allow(types, needs) or trials_that_fit(nodes, needs):
        return None
    if types:
        return f"{needs}; no node type has room for it: {'; '.join(map(str, types))}"
    there = "; ".join(dict.fromkeys(_beside(node, needs) for node in nodes)) or "none"
    return f"{needs}; the nodes of the cluster have: {there}"


def require_places(
    needs: Iterable[Needs], types: Sequence[NodeType], nodes: Sequence[Mapping[str, float]], *, where: str, advice: str,
) -> None:
    """ConfigError, which ends with the advice, if some trial can never be placed. needs: of every cell."""
    for each in sorted(set(needs)):
        reason = refused(each, types, nodes)
        if reason is not None:
            raise ConfigError(
                "VSE-S032", "{where}: one trial asks for {needs}; {hint}", where=where, needs=reason, hint=advice
            )


def trials_that_types_allow(types: Iterable[NodeType], needs: Needs) -> int:
    """How many such trials all possible nodes have room for at a time."""
    return sum(kind.most * copies_that_fit(kind.resources, needs.of_process) for kind in types) // needs.workers


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
    file = _Launcher.model_validate(plain)
    for name, kind in file.types.items():
        most = 1 if name == file.head else min(file.most, file.most if kind.most is None else kind.most)
        yield NodeType(name, {"memory": math.inf} | (kind.resources or {}), most, kind.usd_per_hour)


def _of_kuberay(plain: Mapping[str, Any]) -> Iterator[NodeType]:
    for group in _RayCluster.model_validate(plain).groups:
        memory = math.inf if group.memory is None else RAYS_SHARE * group.memory
        resources = {"memory": memory, "CPU": group.cpus, "GPU": group.gpus}
        if group.accelerator:
            resources[f"accelerator_type:{group.accelerator}"] = 1.0
        yield NodeType(group.name, resources, group.most, group.usd_per_hour)


def _quantity(given: Any) -> float:
    """The value of a quantity in Kubernetes's notation: 4, "500m", "16Gi"."""
    words = str(given)
    unit = next(unit for unit in sorted(_UNITS, key=len, reverse=True) if words.endswith(unit))
    try:
        return float(words.removesuffix(unit)) * _UNITS[unit]
    except ValueError:
        raise ValueError(Problem.of(
            "VSE-S038", 'got {got!r}, need an amount such as 4, "500m" or "16Gi"', got=given
        )) from None


_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0)]
_Quantity = Annotated[_Amount, BeforeValidator(_quantity)]
_Price = Annotated[float, Field(ge=0, lt=1e6, allow_inf_nan=False)]
_LIMITS = ("template", "spec", "containers", 0, "resources", "limits")


def _of_container(parameter: str, limit: str) -> AliasChoices:
    """A number that Ray is given, else the limit of the container."""
    return AliasChoices(AliasPath("rayStartParams", parameter), AliasPath(*_LIMITS, limit))


class _Kind(BaseModel):
    resources: dict[str, _Amount] | None = None
    most: _Count | None = Field(None, validation_alias="max_workers")
    usd_per_hour: _Price | None = Field(None, validation_alias=AliasPath("labels", PRICE_LABEL))


class _Launcher(BaseModel):
    """The file of Ray's launcher."""

    types: dict[str, _Kind] = Field(validation_alias="available_node_types")
    most: _Count = Field(2, validation_alias="max_workers")
    head: str | None = Field(None, validation_alias="head_node_type")


class _Group(BaseModel):
    name: str = Field(validation_alias="groupName")
    most: _Count = Field(1, validation_alias="maxReplicas")
    cpus: _Quantity = Field(0.0, validation_alias=_of_container("num-cpus", "cpu"))
    gpus: _Quantity = Field(0.0, validation_alias=_of_container("num-gpus", "nvidia.com/gpu"))
    memory: _Quantity | None = Field(None, validation_alias=AliasPath(*_LIMITS, "memory"))
    usd_per_hour: _Price | None = Field(None, validation_alias=AliasPath("labels", PRICE_LABEL))
    accelerator: str | None = Field(None, validation_alias=AliasPath("labels", "ray.io/accelerator-type"))


class _RayCluster(BaseModel):
    """The manifest of a RayCluster or a RayJob."""

    groups: list[_Group] = Field([], validation_alias=AliasChoices(
        AliasPath("spec", "rayClusterSpec", "workerGroupSpecs"), AliasPath("spec", "workerGroupSpecs"),
    ))
