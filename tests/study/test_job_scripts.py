"""The scripts in jobs/: what each would run, with which exit code it leaves, and how much Ray would send with it."""

from __future__ import annotations

import runpy
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "jobs").glob("*.py"))


def run_script(script: Path, *words: str, monkeypatch: pytest.MonkeyPatch) -> list[str] | int:
    """The command line that `vsetune` would be given, or the exit code of a script that ends before."""
    given: list[str] = []
    monkeypatch.setattr("vsetune.cli.entry.run", lambda: given.extend(sys.argv[1:]))
    monkeypatch.setattr(sys, "argv", [str(script), *words])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(script), run_name="__main__")
    return given or int(left.value.code or 0)


@pytest.mark.parametrize(("name", "words", "command"), [
    ("sweep", ["a.yaml"], ["study", "run", "a.yaml", "--resume", "--address", "auto"]),
    ("ingest", ["recipe.yaml"], ["data", "ingest", "recipe.yaml", "--address", "auto"]),
    ("nightly", ["a.yaml"], ["nightly", "run", "a.yaml", "--address", "auto"]),
    ("leaderboard", ["a", "--json"], ["leaderboard", "show", "a", "--json"]),
])
def test_a_script_is_one_command_of_vsetune(
    name: str, words: list[str], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_script(ROOT / "jobs" / f"{name}.py", *words, monkeypatch=monkeypatch) == command


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_has_help_and_refuses_to_run_on_nothing(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_script(script, "--help", monkeypatch=monkeypatch) == 0
    assert run_script(script, monkeypatch=monkeypatch) == 2


def test_what_ray_sends_with_a_job_is_small_and_has_all_a_study_needs(tmp_path: Path) -> None:
    from ray._private import ray_constants
    from ray._private.runtime_env.packaging import create_package

    package = tmp_path / "working_dir.zip"
    excludes = ray_constants.get_runtime_env_default_excludes()
    create_package(str(ROOT), package, include_gitignore=True, excludes=excludes)
    names = set(zipfile.ZipFile(package).namelist())
    assert package.stat().st_size < 10e6
    assert {
        "jobs/sweep.py", "studies/quickstart.yaml", "platform/vsetune/cli/entry.py",
        "platform/vsetune/networks/vsepp/published.csv",
    } <= names
    assert not {name.split("/")[0] for name in names} & {"tests", "docs", "benchmarks", ".git", ".venv"}
