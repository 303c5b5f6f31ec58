"""Prometheus on this machine: its files under $VSETUNE_HOME, and the process in the foreground."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from vsetune.home.paths import home
from watching.scraping import RAYS_OWN_FILE

FOLDER = Path(__file__).parents[1]
NO_PROMETHEUS = (
    "prometheus: not on PATH; install it with `sudo apt install prometheus` or `brew install prometheus`, or unpack a "
    "release of https://prometheus.io/download and put it on PATH"
)


def sessions_of_ray() -> Path:
    """Where a Ray of this machine keeps its sessions, unless its head was started with a `--temp-dir`."""
    return Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray"


def write_files(url: str, sessions: Path) -> dict[str, Path]:
    """Write the files that Prometheus and Grafana need, by name. url: future address of Prometheus. sessions: of Ray,
    where its head lists its nodes."""
    prometheus, grafana = home() / "prometheus", home() / "grafana"
    for folder in (prometheus / "targets", grafana / "dashboards", grafana / "provisioning" / "datasources",
                   grafana / "provisioning" / "dashboards"):
        folder.mkdir(parents=True, exist_ok=True)
    config = (FOLDER / "prometheus" / "laptop.yaml").read_text(encoding="utf-8")
    config = config.replace(RAYS_OWN_FILE, str(sessions.absolute() / Path(RAYS_OWN_FILE).name))
    (prometheus / "prometheus.yaml").write_text(config, encoding="utf-8")
    shutil.copyfile(FOLDER / "prometheus" / "alerts.yaml", prometheus / "alerts.yaml")
    for board in (FOLDER / "grafana").glob("*.json"):
        shutil.copyfile(board, grafana / "dashboards" / board.name)
    datasources = {"apiVersion": 1, "datasources": [
        {"name": "Prometheus", "type": "prometheus", "access": "proxy", "url": url, "isDefault": True},
    ]}
    providers = {"apiVersion": 1, "providers": [
        {"name": "vsetune", "type": "file", "options": {"path": str(grafana / "dashboards")}},
    ]}
    for name, plain in (("datasources", datasources), ("dashboards", providers)):  # JSON is YAML
        file = grafana / "provisioning" / name / "vsetune.yaml"
        file.write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")
    return {"config": prometheus / "prometheus.yaml", "data": prometheus / "data",
            "provisioning": grafana / "provisioning"}


def command(binary: str, files: dict[str, Path], *, port: int) -> list[str]:
    """The command that starts Prometheus on loopback only, with the data of two weeks."""
    return [
        binary, f"--config.file={files['config']}", f"--storage.tsdb.path={files['data']}",
        "--storage.tsdb.retention.time=15d", f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]


def where_to_look(url: str, files: dict[str, Path], sessions: Path) -> str:
    """The lines to print: addresses and files."""
    return "\n".join([
        f"Prometheus   {url}, alerts at {url}/alerts; Ctrl-C ends it, its data stay",
        "             it finds the nodes of every study that runs under this VSETUNE_HOME",
        f"             and those of the Ray with sessions in {sessions}; `ray start --temp-dir X`: TEMP_DIR=X",
        f"one page     python dashboards/render.py --url {url} --output board.html",
        f"Grafana      GF_PATHS_PROVISIONING={files['provisioning']} grafana server, if you have one",
    ])
