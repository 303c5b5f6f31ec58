"""Addresses `postgresql://...`, as README and the files for KubeRay give them, open with what is to be installed."""

from __future__ import annotations

import re
import tomllib

import pytest
from cluster_files import KUBERAY, ROOT, cluster_config, local_alternative, pinned
from sqlalchemy.engine import make_url

EXTRA = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
INSTALLED = {
    "image": (KUBERAY / "Dockerfile").read_text(encoding="utf-8"),
    "cluster": "\n".join(cluster_config()["setup_commands"]),
    "own machines": "\n".join(local_alternative()["setup_commands"]),
}


def test_the_extra_brings_the_driver_that_sqlalchemy_looks_for() -> None:
    packages = {re.split(r"[\[<>=]", each)[0].removesuffix("-binary") for each in EXTRA["postgres"]}
    assert make_url("postgresql://host/db").get_driver_name() in packages
    assert packages == {"psycopg", "psycopg2"}, "SQLAlchemy before 2.1 looks for psycopg2"
    assert all(pinned(name) for name in ("psycopg", "psycopg-binary", "psycopg2-binary"))


@pytest.mark.parametrize("commands", INSTALLED.values(), ids=INSTALLED)
def test_nodes_have_it(commands: str) -> None:
    (extras,) = re.findall(r"vsetune\[([\w,]+)\]", commands)
    assert "postgres" in extras.split(",")
