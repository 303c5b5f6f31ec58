"""Before a commit, by `make lint` and on the CI machine the same commands run, and the workflow runs the CI script."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def recipe(target: str) -> list[str]:
    """The commands of a target of make, in an environment that is there already."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "--old-file=.venv/.dev", "VENV=.venv", target],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    )
    return [line.rstrip() for line in done.stdout.splitlines()]


def hooks(stage: str) -> list[dict[str, Any]]:
    config = read(".pre-commit-config.yaml")
    found = [hook for repository in config["repos"] for hook in repository["hooks"]]
    return [hook for hook in found if hook.get("stages", config["default_stages"]) == [stage]]


def test_before_a_commit_runs_what_make_lint_runs() -> None:
    assert [hook["entry"] for hook in hooks("pre-commit")] == recipe("lint")


def test_before_a_push_runs_what_make_test_runs_beyond_that() -> None:
    assert recipe("lint") + [hook["entry"] for hook in hooks("pre-push")] == recipe("test")


def test_ci_runs_make_test_and_nothing_else_of_make() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.findall(r"^\s*make .*$", script, re.MULTILINE) == ["make test"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_hooks_use_the_environment_of_the_project_and_download_nothing() -> None:
    config = read(".pre-commit-config.yaml")
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    every = [hook for repository in config["repos"] for hook in repository["hooks"]]
    assert {hook["language"] for hook in every} == {"system"}
    assert {hook["pass_filenames"] for hook in every} == {False}
    assert every == hooks("pre-commit") + hooks("pre-push")
    assert config["default_install_hook_types"] == ["pre-commit", "pre-push"]


@pytest.mark.parametrize("path", ["platform/vsetune/errors.py", "jobs/sweep.py", "pyproject.toml", "constraints.txt"])
def test_a_change_of_code_or_of_the_tools_calls_every_hook(path: str) -> None:
    assert all(re.search(hook["files"], path) for hook in [*hooks("pre-commit"), *hooks("pre-push")])


def test_the_workflow_runs_the_ci_script_on_python_3_11() -> None:
    workflow = read(".github/workflows/ci.yml")
    assert set(workflow["on"]) == {"push", "pull_request"}
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    checkout, python, run = job["steps"]
    assert checkout["uses"].startswith("actions/checkout@v")
    assert python["uses"].startswith("actions/setup-python@v")
    assert python["with"]["python-version"] == "3.11"
    assert run["run"] == ".ci/run"
    assert job["timeout-minutes"] > 0
