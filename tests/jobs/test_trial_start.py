from __future__ import annotations

import ast
import copyreg
import os
import pickle
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from ray import cloudpickle
from ray.train._internal.storage import StorageContext
from ray.tune.experiment.trial import _TrialInfo
from ray.tune.result import TRIAL_INFO

import vsetune
from vsetune.config.study.resources import Needs
from vsetune.data.stored.array_cache import cached_array, forget_arrays
from vsetune.jobs.placement import LOADED_BY_WORKERS
from vsetune.jobs.trainable import AttemptTrainable
from vsetune.jobs.tune_trainable import PlacementGroupFactory, trials_sent_plainly
from vsetune.training import without_compiler

PACKAGE = Path(vsetune.__file__).parent
NOT_FOR_WORKERS = {"optuna", "sqlalchemy", "mlflow", "sklearn", "transformers", "nltk", "spacy", "rich"}
"""Each takes a worker a second or so to import."""
UNUSED = ("pandas", "ray.data", "ray.tune.tuner", "scipy.special", "rich")
LOADED = """
import pickle, sys
import vsetune.jobs.trainable
sent = sys.stdin.buffer.read()
told = pickle.loads(sent) if sent else None
from vsetune.jobs.unused_modules import UnusedModule
print(*(name for name in sys.argv[1:] if type(sys.modules.get(name)) not in (UnusedModule, type(None))))
if told is not None:
    info = told['__trial_info__']
    print(info.trial_name, info.trial_id, info.trial_resources.bundles, info.experiment_name, sep=", ")
"""


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
    seen, waiting = set(), ["vsetune.jobs.trainable"]
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        if module.startswith("vsetune"):
            waiting += imported_at_once(module)
    assert "vsetune.training.attempt" in seen
    assert not {module for module in seen if module.split(".")[0] in NOT_FOR_WORKERS}


def loaded_in_a_worker(*names: str, sent: bytes = b"") -> list[str]:
    """The lines that a process prints which has imported what a worker imports, and was sent these bytes: which of the
    modules it has loaded, and the note on a trial."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *names], check=True, capture_output=True, input=sent,
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)},
    )
    return done.stdout.decode().splitlines()


def test_a_worker_has_tune_s_class_without_what_tune_imports_beside_it():
    assert loaded_in_a_worker(*UNUSED, "ray.tune.trainable") == ["ray.tune.trainable"]


def test_what_tune_sends_with_a_trial_is_of_modules_that_a_worker_has(tmp_path):
    class Trial:
        trial_id, experiment_dir_name = "a1", "study"
        placement_group_factory = PlacementGroupFactory([{"CPU": 1.0}])

        def __str__(self) -> str:
            return "lmh-c000-s0"

    storage = StorageContext(str(tmp_path), "study", trial_dir_name="lmh-c000-s0-a1")
    note = {TRIAL_INFO: _TrialInfo(Trial()), "storage": storage}
    before = dict(copyreg.dispatch_table)
    with trials_sent_plainly():
        sent = cloudpickle.dumps(note)
    assert copyreg.dispatch_table == before
    loaded, told = loaded_in_a_worker(*UNUSED, sent=sent)
    assert loaded == ""
    assert told == "lmh-c000-s0, a1, [{'CPU': 1.0}], study"
    assert "ray.tune.tuner" in loaded_in_a_worker(*UNUSED, sent=cloudpickle.dumps(note))[0], (
        "Tune sends no such note any more: `trials_sent_plainly` can go"
    )


def test_workers_import_beforehand_what_they_need_and_the_collector_leaves_it_alone():
    code = (
        f"import gc, sys, {LOADED_BY_WORKERS}\n"
        "print('vsetune.jobs.trainable' in sys.modules, gc.isenabled(), gc.get_freeze_count() > 100_000)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)},
    )
    assert done.stdout.split() == ["True", "True", "True"]


def test_tune_is_sent_the_name_of_a_trial_s_class_and_nothing_of_the_driver():
    sent = cloudpickle.dumps(AttemptTrainable)
    assert pickle.loads(sent) is AttemptTrainable
    assert len(sent) < 200
    bundles = AttemptTrainable.default_resource_request({"needs": asdict(Needs(2, 0.5, 1.0, "H100"))}).bundles
    assert bundles == [{"CPU": 2.0, "GPU": 0.5, "memory": 2.0**30, "accelerator_type:H100": 0.001}]


@pytest.mark.parametrize("make", [
    lambda parameters: torch.optim.Adam(parameters, lr=0.1),
    lambda parameters: torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.1),
    lambda parameters: torch.optim.SGD(parameters, lr=0.1),
])
def test_a_plain_step_is_the_step_of_the_optimizer(make):
    steps = []
    for step in (lambda optimizer: optimizer.step(), without_compiler.plain_step):
        weight = torch.nn.Parameter(torch.linspace(-1, 1, 7))
        optimizer = make([weight])
        for _ in range(3):
            optimizer.zero_grad()
            weight.square().sum().backward()
            step(optimizer)
        steps.append(weight.detach().clone())
    assert torch.equal(*steps)


def test_an_array_that_is_open_is_looked_at_again_once_its_file_has_changed(tmp_path):
    def ask() -> np.ndarray:
        return cached_array(str(tmp_path), "vectors.npy", rows=3, make=lambda: np.ones((3, 2), np.float32))

    forget_arrays()
    first = ask()
    assert ask() is first
    np.save(tmp_path / "vectors.npy", np.full((3, 2), np.nan, np.float32))
    assert np.array_equal(ask(), np.ones((3, 2), np.float32))
