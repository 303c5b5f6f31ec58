"""The version stands in one place, `vsetune/version.py`; everything else reads it there."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from pydoc import locate

import torch

import vsetune
from vsetune.config.study.training import TrainingSpec
from vsetune.training.environment import describe_environment

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RELEASE = re.compile(r"^## (\d+)\.(\d+)\.(\d+)(?: - \d{4}-\d{2}-\d{2})?$", re.MULTILINE)


def test_the_command_prints_the_version_of_the_code_that_runs() -> None:
    program = "import sys, vsetune; vsetune.__version__ = '9.8.7'; sys.argv[1:] = ['--version']; " \
        "from vsetune.cli.main import run; run()"
    said = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(ROOT / "platform")}, capture_output=True, text=True,
        check=True,
    )
    assert said.stdout == "vsetune 9.8.7\n"


def test_the_package_and_attempts_have_the_version_of_the_code() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert locate(PROJECT["tool"]["setuptools"]["dynamic"]["version"]["attr"]) == vsetune.__version__
    described = describe_environment(TrainingSpec(), device=torch.device("cpu"), data_fingerprint="none")
    assert described["package_vsetune"] == vsetune.__version__


def test_the_changelog_releases_the_version_last_and_every_version_once() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings[0] == "## Unreleased"
    assert all(RELEASE.fullmatch(heading) for heading in headings[1:])
    releases = [tuple(map(int, found)) for found in RELEASE.findall(text)]
    assert releases == sorted(set(releases), reverse=True)
    assert ".".join(map(str, releases[0])) == vsetune.__version__
    assert re.search(r" - \d{4}-\d{2}-\d{2}$", headings[1])
