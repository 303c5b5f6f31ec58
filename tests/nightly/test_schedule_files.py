"""The files of `jobs/nightly/` to copy: their schedulers take them, and their commands run a night."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import typer
import yaml

from vsetune.cli.main import app
from vsetune.nightly.nightly_spec import load_nightly

ROOT = Path(__file__).parents[2]
FILES = ROOT / "jobs" / "nightly"
SCRIPT = "python jobs/nightly.py"
CRON = r"30 2 \* \* \*"


def cron_line() -> str:
    lines = [line for line in (FILES / "crontab").read_text().splitlines() if not line.startswith("#")]
    (command,) = (re.fullmatch(rf"{CRON} ([^%]+)", line) for line in lines)
    assert command is not None
    assert len(lines[0]) < 990  # cron cuts longer lines
    return command[1]


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string((FILES / name).read_text())
    return parser


def systemd_command() -> str:
    timer = unit("vsetune-nightly.timer")
    assert (timer["Timer"]["Persistent"], timer["Install"]["WantedBy"]) == ("true", "timers.target")
    return unit("vsetune-nightly.service")["Service"]["ExecStart"]


def github_command() -> str:
    workflow = yaml.safe_load((FILES / "github.yml").read_text())
    assert re.fullmatch(CRON, workflow["on"]["schedule"][0]["cron"])
    steps = workflow["jobs"]["night"]["steps"]
    restored, saved = ([step["with"]["path"] for step in steps if f"cache/{word}" in step.get("uses", "")]
                       for word in ("restore", "save"))
    assert restored == saved
    (command,) = (step["run"] for step in steps if step.get("name") == "night")
    return str(command)


def kubernetes_command() -> str:
    manifest = yaml.safe_load((FILES / "cronjob.yaml").read_text())
    kubernetes_validate.validate(manifest, "1.33", strict=True)
    assert manifest["spec"]["concurrencyPolicy"] == "Forbid"
    (container,) = manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    cluster = (ROOT / "jobs" / "kuberay" / "ray_cluster.yaml").read_text()
    assert container["image"] in cluster
    return shlex.join(container["command"])


@pytest.mark.parametrize("command", [cron_line, systemd_command, github_command, kubernetes_command])
def test_a_file_of_a_scheduler_is_valid_and_its_command_runs_a_night(command) -> None:
    text = command()
    found = re.search(r"(?:\bvsetune nightly run|python jobs/nightly\.py) (\S+\.yaml)", text)
    assert found is not None, text
    if SCRIPT in text:
        assert (ROOT / "jobs" / "nightly.py").is_file()
    words = ["nightly", "run", found[1]]
    group = typer.main.get_command(app)
    for name in words[:2]:
        group = group.get_command(typer.Context(group), name)  # type: ignore[attr-defined]
    assert group.make_context("run", words[2:]).params["file"] == Path(found[1])
    assert load_nightly(ROOT / found[1]).nightly == "scenes"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd to ask")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    program = tmp_path / "vsetune-code" / ".venv" / "bin" / "vsetune"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for name in ("vsetune-nightly.service", "vsetune-nightly.timer"):
        (tmp_path / name).write_text((FILES / name).read_text().replace("%h", str(tmp_path)))
    units = [str(tmp_path / f"vsetune-nightly.{kind}") for kind in ("service", "timer")]
    runtime = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    verify = ["systemd-analyze", "verify", "--user", *units]
    done = subprocess.run(verify, capture_output=True, text=True, check=False, env=runtime)
    said = [line for line in done.stderr.splitlines() if "vsetune" in line]
    assert (done.returncode, said) == (0, []), done.stderr
