"""`make dashboards` writes what Prometheus and Grafana need, and says in one line where Prometheus can be had."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from watching.laptop import command, sessions_of_ray, where_to_look, write_files

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    return tmp_path


def test_files_lie_where_prometheus_and_grafana_look_and_are_written_again(home: Path) -> None:
    for _ in range(2):
        files = write_files("http://127.0.0.1:9090", sessions_of_ray())
    config = yaml.safe_load(files["config"].read_text())
    assert (files["config"].parent / config["rule_files"][0]).is_file()
    assert config["scrape_configs"][0]["file_sd_configs"][0]["files"][0] == "targets/*.json"
    assert (home / "prometheus" / "targets").is_dir()
    provider = yaml.safe_load((files["provisioning"] / "dashboards" / "vsetune.yaml").read_text())["providers"][0]
    assert len(list(Path(provider["options"]["path"]).glob("*.json"))) == 4
    source = yaml.safe_load((files["provisioning"] / "datasources" / "vsetune.yaml").read_text())["datasources"][0]
    assert source["url"] == "http://127.0.0.1:9090"
    assert str(files["provisioning"]) in where_to_look("http://127.0.0.1:9090", files, sessions_of_ray())
    words = command("/bin/prometheus", files, port=9090)
    assert [word for word in words if word.startswith("--web.listen")] == ["--web.listen-address=127.0.0.1:9090"]


@pytest.mark.parametrize(("words", "variables", "sessions"), [
    ([], {"RAY_TMPDIR": ""}, "/tmp/ray"), ([], {"RAY_TMPDIR": "/scratch"}, "/scratch/ray"),
    (["--temp-dir", "/scratch/me"], {"RAY_TMPDIR": "/other"}, "/scratch/me"),
])
def test_the_nodes_of_a_head_with_a_folder_of_its_own_are_read(
    words: list[str], variables: dict[str, str], sessions: str, home: Path, tmp_path: Path
) -> None:
    prometheus = tmp_path / "bin" / "prometheus"
    prometheus.parent.mkdir()
    prometheus.write_text("#!/bin/sh\n")
    prometheus.chmod(0o755)
    environment = variables | {"PATH": f"{prometheus.parent}:/bin", "PYTHONPATH": str(ROOT / "platform")}
    done = subprocess.run(
        [sys.executable, "dashboards/up.py", *words], cwd=ROOT, env=os.environ | environment, capture_output=True,
        text=True, check=True,
    )
    assert f"sessions in {sessions};" in done.stdout
    config = yaml.safe_load((home / "prometheus" / "prometheus.yaml").read_text())
    files = config["scrape_configs"][0]["file_sd_configs"][0]["files"]
    assert files == ["targets/*.json", f"{sessions}/prom_metrics_service_discovery.json"]


@pytest.mark.parametrize(("words", "start"), [
    (["dashboards/up.py"], "prometheus: not on PATH; install it"),
    (["dashboards/render.py", "--url", "http://127.0.0.1:1"], "http://127.0.0.1:1: no Prometheus answers there"),
])
def test_a_prometheus_that_is_missing_or_does_not_answer_is_one_line(
    tmp_path: Path, words: list[str], start: str
) -> None:
    environment = {"PATH": str(tmp_path), "VSETUNE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "platform")}
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=os.environ | environment, capture_output=True, text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(start)
    assert done.stderr.count("\n") == 1
