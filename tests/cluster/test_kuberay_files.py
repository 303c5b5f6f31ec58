"""jobs/kuberay/: fields that KubeRay has, pods that Kubernetes takes, groups that Ray can read; no secret, no root.

KubeRay's own fields are checked against `kuberay_fields.yaml`, everything else against the schemas of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from cluster_files import KUBERAY, LABEL, cluster_config, kubernetes_objects, pinned

FIELDS = yaml.safe_load((Path(__file__).parent / "kuberay_fields.yaml").read_text(encoding="utf-8"))
KUBERNETES = "1.33"

RAY = [each for each in kubernetes_objects() if each["apiVersion"] == "ray.io/v1"]
PLAIN = [each for each in kubernetes_objects() if each["apiVersion"] != "ray.io/v1"]


def named(each: dict[str, Any]) -> str:
    return f"{each['kind']} {each['metadata']['name']}"


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """(what it is of, spec) of every pod template, those of groups and of the submitter."""
    for each in RAY:
        groups = [each["spec"].get("headGroupSpec"), *each["spec"].get("workerGroupSpecs", [])]
        templates = [group["template"] for group in groups if group] + [each["spec"].get("submitterPodTemplate")]
        yield from ((named(each), template["spec"]) for template in templates if template)


PODS = list(pods())


def check(kind: str, spec: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator({**FIELDS, "$ref": f"#/$defs/{kind}"}).validate(spec)


@pytest.mark.parametrize("each", RAY, ids=named)
def test_every_field_is_one_of_kuberay(each: dict[str, Any]) -> None:
    assert set(each) == {"apiVersion", "kind", "metadata", "spec"}
    check(each["kind"], each["spec"])


@pytest.mark.parametrize("each", PLAIN, ids=named)
def test_kubernetes_takes_every_other_object(each: dict[str, Any]) -> None:
    kubernetes_validate.validate(each, KUBERNETES, strict=True)


@pytest.mark.parametrize(("of", "spec"), PODS)
def test_kubernetes_takes_every_pod(of: str, spec: dict[str, Any]) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)


@pytest.mark.parametrize(("of", "spec"), PODS)
def test_no_pod_runs_as_root_or_without_bounds(of: str, spec: dict[str, Any]) -> None:
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] >= 1000
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        for bound in ("requests", "limits"):
            assert {"cpu", "memory"} <= set(container["resources"][bound])


@pytest.mark.parametrize(("of", "spec"), PODS)
def test_secrets_come_by_reference(of: str, spec: dict[str, Any]) -> None:
    for container in spec["containers"]:
        for variable in container.get("env", []):
            is_secret = re.search("TOKEN$|PASSWORD$|KEY$", variable["name"])
            assert not is_secret or set(variable["valueFrom"]) == {"secretKeyRef"}
    assert kubernetes_objects("Secret") == []


def test_image_and_ray_are_those_of_the_constraints() -> None:
    (cluster,) = kubernetes_objects("RayCluster")
    assert str(cluster["spec"]["rayVersion"]) == pinned("ray")
    images = {container["image"] for _, spec in PODS for container in spec["containers"]}
    assert images == {f"REGISTRY/vsetune:ray-{pinned('ray')}"}
    dockerfile = (KUBERAY / "Dockerfile").read_text(encoding="utf-8")
    assert f"\nFROM {cluster_config()['docker']['image']}\n" in dockerfile


def test_rays_autoscaler_reads_groups_resources_and_prices() -> None:
    """By the code that runs beside the head in a pod; it ends with the launcher's own validation."""
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    (cluster,) = kubernetes_objects("RayCluster")
    config = _derive_autoscaling_config_from_ray_cr(cluster | {"metadata": {"name": "vsetune", "namespace": "ml"}})
    types = config["available_node_types"]
    assert types["headgroup"]["resources"]["CPU"] == 0
    assert {name: each["resources"].get("GPU", 0) for name, each in types.items()} == {
        "headgroup": 0, "gpu-t4": 1, "gpu-l4": 1, "cpu": 0,
    }
    for name, each in types.items():
        assert each["min_workers"] == 0
        assert float(each["labels"][f"{LABEL}usd-per-hour"]) > 0
        assert each["labels"][f"{LABEL}node-type"] == name.replace("headgroup", "head")


def test_a_worker_that_is_stopped_is_drained_within_its_grace() -> None:
    (cluster,) = kubernetes_objects("RayCluster")
    for group in cluster["spec"]["workerGroupSpecs"]:
        spec = group["template"]["spec"]
        command = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1]
        seconds = int(command.split()[-1])
        assert command.startswith("python -m vsetune.study.leaving_node now ")
        assert 60 <= seconds < spec["terminationGracePeriodSeconds"] <= 120


def test_the_token_is_on_and_only_its_own_pods_reach_the_cluster() -> None:
    (cluster,) = kubernetes_objects("RayCluster")
    assert cluster["spec"]["authOptions"] == {"mode": "token"}
    (policy,) = kubernetes_objects("NetworkPolicy")
    assert policy["spec"]["podSelector"]["matchLabels"] == {"ray.io/cluster": cluster["metadata"]["name"]}
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    within, from_outside = policy["spec"]["ingress"]
    assert within["from"] == [{"podSelector": policy["spec"]["podSelector"]}]
    assert from_outside["ports"] == [{"protocol": "TCP", "port": 8265}]
    (job,) = kubernetes_objects("RayJob")
    allowed = [each["podSelector"]["matchLabels"] for each in from_outside["from"]]
    assert job["spec"]["submitterPodTemplate"]["metadata"]["labels"] in allowed
    assert job["spec"]["clusterSelector"] == policy["spec"]["podSelector"]["matchLabels"]
