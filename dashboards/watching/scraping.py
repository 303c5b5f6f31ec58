"""How Prometheus finds the nodes of a Ray cluster: on a laptop, on AWS, on Kubernetes."""

from __future__ import annotations

from typing import Any

from watching.alerts import rules

METRICS_PORT = 8080
"""Of every node on a cluster: `ray start --metrics-export-port=8080`, and KubeRay's default."""
RULES_FILE = "alerts.yaml"
RAYS_OWN_FILE = "/tmp/ray/prom_metrics_service_discovery.json"
"""Written by the dashboard of a head node, for all nodes of its cluster; a Ray without dashboard writes none."""


def laptop() -> dict[str, Any]:
    """For a file in $VSETUNE_HOME/prometheus: drivers write `targets` there. Paths are relative to the file."""
    return _config("10s", {"file_sd_configs": [
        {"files": ["targets/*.json", RAYS_OWN_FILE], "refresh_interval": "10s"},
    ]})


def aws(cluster_name: str = "vsetune", region: str = "us-east-1") -> dict[str, Any]:
    """For Prometheus on an instance that may call ec2:DescribeInstances; Ray's launcher tags what it starts."""
    return _config("15s", {
        "ec2_sd_configs": [{
            "region": region, "port": METRICS_PORT,
            "filters": [
                {"name": "tag:ray-cluster-name", "values": [cluster_name]},
                {"name": "instance-state-name", "values": ["running"]},
            ],
        }],
        "relabel_configs": [
            {"source_labels": ["__meta_ec2_tag_ray_user_node_type"], "target_label": "ray_node_type"},
            {"source_labels": ["__meta_ec2_instance_type"], "target_label": "instance_type"},
        ],
    })


def kuberay() -> list[dict[str, Any]]:
    """For the Prometheus operator: every pod of a Ray cluster, and our alert rules."""
    endpoint = {
        "port": "metrics", "interval": "15s",
        "relabelings": [
            {"targetLabel": "job", "replacement": "ray"},
            {"sourceLabels": ["__meta_kubernetes_pod_label_ray_io_cluster"], "targetLabel": "ray_cluster"},
            {"sourceLabels": ["__meta_kubernetes_pod_label_ray_io_group"], "targetLabel": "ray_node_type"},
        ],
    }
    return [
        {
            "apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "metadata": {"name": "vsetune-ray"},
            "spec": {
                "selector": {"matchExpressions": [
                    {"key": "ray.io/node-type", "operator": "In", "values": ["head", "worker"]},
                ]},
                "podMetricsEndpoints": [endpoint],
            },
        },
        {
            "apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": {"name": "vsetune"},
            "spec": rules(),
        },
    ]


def _config(interval: str, job: dict[str, Any]) -> dict[str, Any]:
    return {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": [RULES_FILE],
        "scrape_configs": [{"job_name": "ray", **job}],
    }
