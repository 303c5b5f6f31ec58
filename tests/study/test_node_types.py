from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from refusals import refused

from vsetune.config.study.resources import Needs
from vsetune.errors import ConfigError
from vsetune.study import node_types
from vsetune.study.node_types import NodeType, known_node_types, read_node_types, share_of, unused_gpus
from vsetune.study.node_types import refused as refused_by
from vsetune.study.trial_measures import price_of

LAUNCHER = """
cluster_name: vsetune
max_workers: 6
head_node_type: head
available_node_types:
  head: {resources: {CPU: 0}, node_config: {}}
  spot_gpu:
    max_workers: 4
    resources: {CPU: 8, GPU: 1, "accelerator_type:H100": 1}
    labels: {vsetune.io/usd-per-hour: "2.45"}
    node_config: {}
"""
KUBERAY = """
apiVersion: ray.io/v1
kind: RayJob
spec:
  rayClusterSpec:
    workerGroupSpecs:
      - groupName: gpu
        maxReplicas: 3
        labels: {vsetune.io/usd-per-hour: "1.5", ray.io/accelerator-type: H100}
        template: {spec: {containers: [{resources: {limits: {cpu: 7500m, memory: 10Gi, nvidia.com/gpu: 1}}}]}}
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    return file


def test_the_file_of_rays_launcher_names_types_limits_and_prices(tmp_path: Path) -> None:
    head, gpu = read_node_types(written(tmp_path, LAUNCHER))
    assert (head.most, gpu.most, gpu.usd_per_hour) == (1, 4, 2.45)
    assert str(gpu) == "spot_gpu (8 CPUs, 1 GPUs, H100)"
    assert refused_by(Needs(cpus=8, memory_gib=500), [gpu], []) is None  # how much memory it has, the file does not say


def test_a_manifest_of_kuberay_names_them_too(tmp_path: Path) -> None:
    (gpu,) = read_node_types(written(tmp_path, KUBERAY))
    assert (gpu.name, gpu.most, gpu.usd_per_hour) == ("gpu", 3, 1.5)
    assert gpu.resources == {"CPU": 7.5, "GPU": 1.0, "memory": 0.7 * 10 * 2**30, "accelerator_type:H100": 1.0}


@pytest.mark.parametrize("text", ["study: mine\n", "available_node_types: {}\n", "spec: {workerGroupSpecs: []}\n"])
def test_a_file_without_node_types_is_refused(tmp_path: Path, text: str) -> None:
    with refused("VSE-S039", file=tmp_path / "cluster.yaml"):
        read_node_types(written(tmp_path, text))


GPU, GROUP = "available_node_types.spot_gpu", "spec.rayClusterSpec.workerGroupSpecs[0]"


@pytest.mark.parametrize(("text", "problem"), [
    ("available_node_types: [gpu]\n", "available_node_types: got "),
    ("available_node_types: {gpu: 4}\n", "available_node_types.gpu: got 4"),
    (LAUNCHER.replace("GPU: 1", "GPU: one"), f"{GPU}.resources.GPU: got 'one'"),
    (LAUNCHER.replace("GPU: 1", "GPU: .nan"), f"{GPU}.resources.GPU: got nan"),
    (LAUNCHER.replace("CPU: 8", "CPU: -8"), f"{GPU}.resources.CPU: got -8"),
    (LAUNCHER.replace("max_workers: 4", "max_workers: -3"), f"{GPU}.max_workers: got -3"),
    (LAUNCHER.replace("max_workers: 6", "max_workers: 1.5"), "max_workers: got 1.5"),
    (LAUNCHER.replace("2.45", "cheap"), f"{GPU}.labels.vsetune.io/usd-per-hour: got 'cheap'"),
    (LAUNCHER.replace("2.45", "-1"), f"{GPU}.labels.vsetune.io/usd-per-hour: got '-1'"),
    (LAUNCHER.replace("2.45", "nan"), f"{GPU}.labels.vsetune.io/usd-per-hour: got 'nan'"),
    (KUBERAY.replace("maxReplicas: 3", "maxReplicas: -3"), f"{GROUP}.maxReplicas: got -3"),
    (KUBERAY.replace("7500m", "many"), f"{GROUP}.template.spec.containers[0].resources.limits.cpu: got 'many'"),
    (KUBERAY.replace("10Gi", ".nan"), f"{GROUP}.template.spec.containers[0].resources.limits.memory: got nan"),
])
def test_a_wrong_value_is_named_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError) as error:
        read_node_types(file)
    (line,) = error.value.problems
    assert line.startswith(f"{file}: {problem}")


def test_without_a_file_the_cluster_is_what_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("VSETUNE_CLUSTER", raising=False)
    assert known_node_types() == []
    monkeypatch.setenv("VSETUNE_CLUSTER", str(written(tmp_path, LAUNCHER)))
    assert [kind.name for kind in known_node_types()] == ["head", "spot_gpu"]


def test_what_fits_nowhere_is_refused_with_the_types() -> None:
    gpu = NodeType("gpu", {"CPU": 8.0, "GPU": 1.0}, 2, 2.0)
    types = [NodeType("cpu", {"CPU": 4.0, "memory": 2.0**34}, 2, 0.2), gpu]
    assert refused_by(Needs(cpus=8), types, []) is None
    assert refused_by(Needs(cpus=16), types, [{"CPU": 32.0}]) is None  # a node that is there by hand
    reason = refused_by(Needs(cpus=16, gpus=1, memory_gib=3), types, [])
    assert reason == (
        "16 CPUs, 1 GPUs, 3 GiB memory; no node type has room for it: "
        "cpu (4 CPUs, 0 GPUs, 16 GiB); gpu (8 CPUs, 1 GPUs)"
    )
    assert refused_by(Needs(), [], []) == "1 CPUs, 0 GPUs; the nodes of the cluster have: none"


def test_gpus_that_no_trial_uses_are_reported() -> None:
    idle, with_gpus = {"CPU": 4.0}, {"CPU": 4.0, "GPU": 2.0}
    (line,) = unused_gpus([Needs(), Needs(cpus=2)], [idle, with_gpus])
    assert "2 GPUs are not used" in line
    assert unused_gpus([Needs()], [idle]) == []
    assert unused_gpus([Needs(), Needs(gpus=0.5)], [with_gpus]) == []


@pytest.mark.parametrize(("needs", "there"), [
    (Needs(cpus=9), "4 CPUs, 0 GPUs; 8 CPUs, 0 GPUs"),
    (Needs(memory_gib=2), "4 CPUs, 0 GPUs, 1 GiB memory; 8 CPUs, 0 GPUs, 0 GiB memory"),
    (Needs(accelerator="H100"), "4 CPUs, 0 GPUs, no accelerator; 8 CPUs, 0 GPUs, L4"),
])
def test_the_nodes_are_listed_beside_the_needs(needs: Needs, there: str) -> None:
    nodes = [{"CPU": 4.0, "memory": 2.0**30}, {"CPU": 4.0, "memory": 2.0**30}, {"CPU": 8.0, "accelerator_type:L4": 1.0}]
    assert refused_by(needs, (), nodes) == f"{needs}; the nodes of the cluster have: {there}"


def test_a_trial_pays_for_the_larger_of_its_shares_of_a_node() -> None:
    node = {"CPU": 8.0, "GPU": 2.0}
    assert share_of(node, Needs(cpus=2)) == 0.25
    assert share_of(node, Needs(cpus=1, gpus=1)) == 0.5
    assert share_of(node, Needs(cpus=64)) == 1.0
    assert share_of({"CPU": 4.0}, Needs(cpus=1, gpus=0)) == 0.25
    assert share_of({}, Needs()) == 1.0


def test_a_price_that_is_none_is_told_once_and_counts_as_no_price(caplog: pytest.LogCaptureFixture) -> None:
    assert price_of("a", {"vsetune.io/usd-per-hour": "2.5"}) == 2.5
    assert price_of("a", {}) is None
    with caplog.at_level(logging.WARNING):
        assert [price_of("node-with-words", {"vsetune.io/usd-per-hour": "cheap"}) for _ in range(3)] == [None] * 3
    assert len(caplog.messages) == 1
    assert "vsetune.io/usd-per-hour is cheap" in caplog.text


@pytest.mark.parametrize(("own", "files", "cpus", "mib"), [
    ("0::/", {"cpu.max": "150000 100000", "memory.max": str(300 * 2**20), "memory.current": str(100 * 2**20)}, 1, 250),
    ("0::/", {"cpu.max": "max 100000", "memory.max": "max", "memory.current": "5"}, None, None),
    ("0::/a/b", {"a/cpu.max": "50000 100000", "a/b/cpu.max": "max 100000"}, 1, None),
    ("3:cpu,cpuacct:/\n4:memory:/gone", {
        "cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": str(400 * 2**20), "memory/memory.usage_in_bytes": str(100 * 2**20),
    }, 1, 350),
    ("3:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None, None),
])
def test_this_machine_has_what_its_container_allows(
    own: str, files: dict[str, str], cpus: int | None, mib: int | None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """50 MiB of what the container uses are cached files, which it can give up."""
    monkeypatch.setattr(node_types, "_CGROUPS", tmp_path)
    monkeypatch.setattr(node_types, "_OWN_CGROUPS", tmp_path / "own")
    (tmp_path / "own").write_text(own + "\n")
    for name, text in files.items():
        file, prefix = tmp_path / name, "total_" if "/memory" in name else ""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
        cached = f"{prefix}inactive_file {25 * 2**20}\n{prefix}active_file {25 * 2**20}\n"
        (file.parent / "memory.stat").write_text(f"anon 7\n{cached}")
    total, free = node_types.own_memory()
    assert node_types.own_cpus() == (cpus or len(os.sched_getaffinity(0)))
    assert free == mib * 2**20 if mib else total > free > 2**30
