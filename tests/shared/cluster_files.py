"""What cluster.yaml and the files of KubeRay say, read as Ray and Kubernetes read them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CLUSTER_FILE = ROOT / "cluster.yaml"
KUBERAY = ROOT / "jobs" / "kuberay"
LABEL = "vsetune.io/"

_ALTERNATIVE = re.compile(r"^#\| ?(.*)$", re.MULTILINE)


def cluster_config() -> dict[str, Any]:
    """The cluster on AWS, as it stands there."""
    return dict(yaml.safe_load(CLUSTER_FILE.read_text(encoding="utf-8")))


def local_alternative() -> dict[str, Any]:
    """The commented part of the same file, as it is once the marks are taken away."""
    lines = _ALTERNATIVE.findall(CLUSTER_FILE.read_text(encoding="utf-8"))
    return dict(yaml.safe_load("\n".join(lines)))


def kubernetes_objects(kind: str | None = None) -> list[dict[str, Any]]:
    """Every object of the files of KubeRay, or those of one kind."""
    found = [
        each for path in sorted(KUBERAY.glob("*.yaml")) for each in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]
    return [each for each in found if kind in (None, each["kind"])]


def pinned(package: str) -> str:
    """The version that constraints.txt tests with."""
    found = re.search(rf"^{package}==(.+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, package
    return found[1]
