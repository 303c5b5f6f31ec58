from __future__ import annotations

import ast
import pickle
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from ray import cloudpickle

import vsetune
from vsetune.config.study.resources import Needs
from vsetune.data.stored.array_cache import cached_array, forget_arrays
from vsetune.study.trainable import AttemptTrainable, SpoiltProcess
from vsetune.training.failures import FINAL

PACKAGE = Path(vsetune.__file__).parent
NOT_FOR_WORKERS = {"optuna", "sqlalchemy", "mlflow", "sklearn", "transformers", "nltk", "spacy", "rich"}
"""Each takes a worker a second or so to import."""


def imported_at_once(module: str) -> set[str]:
    """What a module of ours imports when it is imported itself; names of functions are left out."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not file.exists():
        return set()
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_a_worker_imports_nothing_that_only_the_driver_needs():
    seen, waiting = set(), ["vsetune.study.trainable"]
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        if module.startswith("vsetune"):
            waiting += imported_at_once(module)
    assert "vsetune.training.attempt" in seen
    assert not {module for module in seen if module.split(".")[0] in NOT_FOR_WORKERS}


def test_tune_is_sent_the_name_of_a_trial_s_class_and_nothing_of_the_driver():
    sent = cloudpickle.dumps(AttemptTrainable)
    assert pickle.loads(sent) is AttemptTrainable
    assert len(sent) < 200
    bundles = AttemptTrainable.default_resource_request({"needs": asdict(Needs(2, 0.5, 1.0, "H100"))}).bundles
    assert bundles == [{"CPU": 2.0, "GPU": 0.5, "memory": 2.0**30, "accelerator_type:H100": 0.001}]


def test_an_array_that_is_open_is_looked_at_again_once_its_file_has_changed(tmp_path):
    def ask() -> np.ndarray:
        return cached_array(str(tmp_path), "vectors.npy", rows=3, make=lambda: np.ones((3, 2), np.float32))

    forget_arrays()
    first = ask()
    assert ask() is first
    np.save(tmp_path / "vectors.npy", np.full((3, 2), np.nan, np.float32))
    assert np.array_equal(ask(), np.ones((3, 2), np.float32))


def test_a_gpu_that_is_not_there_interrupts_the_trial_and_replaces_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    trial = {"trial": "vsepp.lmh-c000-s0"}
    worker = AttemptTrainable({"trial": trial, "needs": {"gpus": 0.5}, "folder": str(tmp_path)})
    with pytest.raises(SpoiltProcess, match=r"device: Ray gives the trial a GPU .* PyTorch finds none") as caught:
        worker.step()
    worker.cleanup()
    assert caught.value.kind == "device"
    assert caught.value.kind not in FINAL
