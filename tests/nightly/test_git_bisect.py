"""`git bisect run vsetune nightly check` finds the commit that changed a number, in a repository made for the test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from git_folders import committed, git
from night_files import PLAIN

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
PLATFORM = Path(__file__).parents[2] / "platform"
STEP = "platform/vsetune/training/step.py"
FIRST = "platform/vsetune/nightly/first_steps.py"


@pytest.mark.timeout(600)
def test_git_bisect_finds_the_commit_that_changed_what_is_computed_and_skips_one_that_cannot_run(
    tmp_path: Path
) -> None:
    repository, file = tmp_path / "code", tmp_path / "nightly.yaml"
    shutil.copytree(PLATFORM, repository / "platform", ignore=shutil.ignore_patterns("__pycache__"))
    git(repository, "init", "--quiet")
    file.write_text(yaml.safe_dump(PLAIN))
    step, first = (repository / STEP).read_text(), (repository / FIRST).read_text()
    vsetune = [sys.executable, "-m", "vsetune.cli.main", "nightly"]
    environment = {**os.environ, "PYTHONPATH": str(repository / "platform"), "PYTHONDONTWRITEBYTECODE": "1"}

    def said(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=repository, env=environment, capture_output=True, text=True, check=False)

    good = committed(repository, "notes.md", "the good night")
    night = said(*vsetune, "run", str(file), "--date", "2026-01-01")
    assert night.returncode == 0, night.stderr
    committed(repository, "notes.md", "a harmless change")
    broken = committed(repository, FIRST, first + "\nraise RuntimeError('half a change')\n")
    committed(repository, FIRST, first)
    assert "output.value.detach(), norm" in step
    scaled = step.replace("output.value.detach(), norm", "1.001 * output.value.detach(), norm")
    guilty = committed(repository, STEP, scaled, "scale the loss")
    bad = committed(repository, "notes.md", "later")

    check = [*vsetune, "check", str(file), "--measure", "first_losses"]
    assert said("git", "bisect", "start", bad, good).returncode == 0
    found = said("git", "bisect", "run", *check)
    assert f"{guilty} is the first bad commit" in found.stdout, found.stdout + found.stderr
    git(repository, "checkout", "--quiet", broken)
    skipped = said(*check)
    assert skipped.returncode == 125
    assert "half a change" in skipped.stderr
    git(repository, "bisect", "reset", good)
    whole = said(*vsetune, "check", str(file), "--cell", "vsepp.lmh")
    assert whole.returncode == 0, whole.stderr
    file.write_text(yaml.safe_dump(PLAIN | {"first_steps": {"seed": 1}}))
    other = said(*check)
    assert other.returncode == 125
    assert "VSE-G542" in other.stderr
    assert "settings.first_steps" in other.stderr
