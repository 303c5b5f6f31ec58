from __future__ import annotations

from pathlib import Path

import pytest

from vsetune.config.study.resources import Needs
from vsetune.errors import ConfigError
from vsetune.study.node_types import NodeType, known_node_types, read_node_types, refused, unused_gpus

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
    assert refused(Needs(cpus=8, memory_gib=500), [gpu], []) is None  # how much memory it has, the file does not say


def test_a_manifest_of_kuberay_names_them_too(tmp_path: Path) -> None:
    (gpu,) = read_node_types(written(tmp_path, KUBERAY))
    assert (gpu.name, gpu.most, gpu.usd_per_hour) == ("gpu", 3, 1.5)
    assert gpu.resources == {"CPU": 7.5, "GPU": 1.0, "memory": 0.7 * 10 * 2**30, "accelerator_type:H100": 1.0}


@pytest.mark.parametrize(("text", "told"), [
    ("study: mine\n", "cannot be understood as a cluster"),
    ("available_node_types: {}\n", "names no node types"),
    (LAUNCHER.replace('"2.45"', "cheap"), "cannot be understood as a cluster"),
    (LAUNCHER.replace('"2.45"', '"-1"'), "need dollars per hour"),
])
def test_a_file_that_is_no_cluster_is_told_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        read_node_types(written(tmp_path, text))
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "told"), [
    ("study: mine\n", "need `available_node_types` of Ray's launcher, or the `spec` of a RayCluster"),
    ("available_node_types: [gpu]\n", "available_node_types: got a list, need node types by their names"),
    ("available_node_types: {gpu: 4}\n", "available_node_types.gpu: got a number, need its settings by their names"),
    (LAUNCHER.replace("GPU: 1", "GPU: one"), "available_node_types.spot_gpu.resources.GPU: got 'one', need a number"),
    (LAUNCHER.replace("GPU: 1", "GPU: .nan"), "available_node_types.spot_gpu.resources.GPU: got nan, need a number"),
    (LAUNCHER.replace("CPU: 8", "CPU: -8"), "available_node_types.spot_gpu.resources.CPU: got -8, need a number"),
    (LAUNCHER.replace("max_workers: 4", "max_workers: -3"), "spot_gpu.max_workers: got -3, need a whole number"),
    (LAUNCHER.replace("max_workers: 6", "max_workers: 1.5"), "(max_workers: got 1.5, need a whole number"),
    (LAUNCHER.replace("2.45", "cheap"), "spot_gpu.labels.vsetune.io/usd-per-hour: got 'cheap', need dollars"),
    (LAUNCHER.replace("2.45", "nan"), "spot_gpu.labels.vsetune.io/usd-per-hour: got 'nan', need dollars"),
    (KUBERAY.replace("maxReplicas: 3", "maxReplicas: -3"), "gpu.maxReplicas: got -3, need a whole number"),
    (KUBERAY.replace("7500m", "many"), "gpu.num-cpus or limits.cpu: got 'many', need an amount"),
    (KUBERAY.replace("10Gi", ".nan"), "gpu.limits.memory: got nan, need an amount"),
])
def test_a_value_that_can_be_none_is_named_with_what_is_needed(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_node_types(written(tmp_path, text))
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_without_a_file_the_cluster_is_what_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("VSETUNE_CLUSTER", raising=False)
    assert known_node_types() == []
    monkeypatch.setenv("VSETUNE_CLUSTER", str(written(tmp_path, LAUNCHER)))
    assert [kind.name for kind in known_node_types()] == ["head", "spot_gpu"]


def test_what_fits_nowhere_is_refused_with_the_types() -> None:
    gpu = NodeType("gpu", {"CPU": 8.0, "GPU": 1.0}, 2, 2.0)
    types = [NodeType("cpu", {"CPU": 4.0, "memory": 2.0**34}, 2, 0.2), gpu]
    assert refused(Needs(cpus=8), types, []) is None
    assert refused(Needs(cpus=16), types, [{"CPU": 32.0}]) is None  # a node that is there by hand
    reason = refused(Needs(cpus=16, gpus=1, memory_gib=3), types, [])
    assert reason == (
        "16 CPUs, 1 GPUs, 3 GiB memory; no node type has room for it: "
        "cpu (4 CPUs, 0 GPUs, 16 GiB); gpu (8 CPUs, 1 GPUs)"
    )
    assert refused(Needs(), [], []) == "1 CPUs, 0 GPUs; the nodes of the cluster have: none"


def test_gpus_that_no_trial_uses_are_told_with_the_line_to_write() -> None:
    idle, with_gpus = {"CPU": 4.0}, {"CPU": 4.0, "GPU": 2.0}
    (line,) = unused_gpus([Needs(), Needs(cpus=2)], [idle, with_gpus])
    assert line.startswith("trials train on CPUs (resources.gpus: 0), and 2 GPUs are not used; to train there, write")
    assert "`resources: {gpus: 1}`" in line
    assert "a GPU is not used" in unused_gpus([Needs()], [{"GPU": 1.0}])[0]
    assert unused_gpus([Needs()], [idle]) == []
    assert unused_gpus([Needs(), Needs(gpus=0.5)], [with_gpus]) == []


def test_what_the_nodes_lack_is_told_beside_what_is_asked_for() -> None:
    nodes = [{"CPU": 4.0, "memory": 2.0**30}, {"CPU": 4.0, "memory": 2.0**30}, {"CPU": 8.0, "accelerator_type:L4": 1.0}]
    assert refused(Needs(cpus=9), (), nodes) == (
        "9 CPUs, 0 GPUs; the nodes of the cluster have: 4 CPUs, 0 GPUs; 8 CPUs, 0 GPUs"
    )
    assert (refused(Needs(memory_gib=2), (), nodes) or "").endswith(
        "have: 4 CPUs, 0 GPUs, 1 GiB memory; 8 CPUs, 0 GPUs, 0 GiB memory"
    )
    assert (refused(Needs(accelerator="H100"), (), nodes) or "").endswith(
        "have: 4 CPUs, 0 GPUs, no accelerator; 8 CPUs, 0 GPUs, L4"
    )
