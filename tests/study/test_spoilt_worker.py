"""A device error stays in its process: the worker is replaced, and no later trial fails because of it. What a component
raises itself fails its trial the second time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from plugin_folders import LOSS, write_loss

from vsetune.records.studies import Studies

pytestmark = pytest.mark.slow
PLATFORM = Path(__file__).parents[2] / "platform"

TINY: dict[str, Any] = {
    "study": "tiny", "data": {"path": "data/scenes", "scenes": {"train": 48, "validation": 16, "test": 16}},
    "networks": [{"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}}],
    "losses": [{"name": "lmh"}], "search": {"configurations": 3}, "resources": {"concurrent_trials": 1},
    "training": {"epochs": 2, "batch_size": 40, "learning_rate": 1e-3},
}

SPOIL = """
import importlib.abc, importlib.machinery, os, sys
from pathlib import Path

MARK = Path(os.environ["SPOILT_PROCESS"])

class Spoiler(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "vsetune.training.attempt":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            advance = module.Attempt.advance

            def spoilt(self):
                if not MARK.exists():
                    MARK.write_text(str(os.getpid()))
                if MARK.read_text() == str(os.getpid()):
                    raise RuntimeError("CUDA error: unspecified launch failure")
                return advance(self)

            module.Attempt.advance = spoilt

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Spoiler())
"""
"""Python imports it in every process: the first one to train is spoilt for good, as a broken CUDA context is."""


def run(study: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vsetune.cli.main", "study", "run", str(study)], env=os.environ | environment,
        capture_output=True, text=True, timeout=280,
    )


FAULTY = {
    "a file that is not there": (
        "open('weights.txt')", "storage: FileNotFoundError at half_hinge/loss.py:18 in step 0: ",
    ),
    "an assertion on the device": (
        "raise RuntimeError('CUDA error: device-side assert triggered')",
        "device: RuntimeError of an assertion on the device: ",
    ),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_what_a_loss_raises_twice_fails_its_trials_and_no_others(fault: str, tmp_path: Path) -> None:
    line, told = FAULTY[fault]
    write_loss(tmp_path / "half_hinge", loss=LOSS.replace("        hinges =", f"        {line}\n        hinges ="))
    study = tmp_path / "tiny.yaml"
    study.write_text(yaml.safe_dump(TINY | {
        "plugins": ["half_hinge"], "losses": [{"name": "lmh"}, {"name": "half_hinge"}], "search": {"configurations": 1},
    }))
    done = run(study, PYTHONPATH=str(PLATFORM))
    assert done.returncode == 3, done.stderr
    recorded = Studies().attempts("tiny")
    ends = {(each.start.loss, each.start.number): (each.status, each.error) for each in recorded}
    assert ends.pop(("lmh", 1)) == ("finished", None)
    (first, error), (second, again) = (ends[("half_hinge", number)] for number in (1, 2))
    assert (first, second, len(ends)) == ("killed", "failed", 2)
    assert str(error).startswith(told)
    assert again == f"{error} (twice at this place, so it is no outage)"


def test_a_device_error_replaces_the_worker_and_fails_no_trial(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SPOIL)
    mark, study = tmp_path / "mark", tmp_path / "tiny.yaml"
    study.write_text(yaml.safe_dump(TINY))
    done = run(study, PYTHONPATH=f"{tmp_path}:{PLATFORM}", SPOILT_PROCESS=str(mark))
    assert done.returncode == 0, done.stderr
    assert "device: CUDA error: unspecified launch failure; goes on" in done.stderr
    recorded = Studies().attempts("tiny")
    assert sorted(each.status for each in recorded) == ["finished"] * 3 + ["killed"]
    assert done.stderr.count("CUDA error") == 1
    assert "Traceback" not in done.stderr
