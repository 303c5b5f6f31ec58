"""A trial of two processes loses one, goes on with one, then with two, and has the curve of a trial never disturbed."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
import yaml
from plugin_folders import LOSS, write_loss
from ray._private.authentication.authentication_token_setup import ensure_token_if_auth_enabled
from ray.cluster_utils import Cluster
from refusals import refused
from rich.console import Console

from vsetune.config.study.resources import Needs, ResourceSpec
from vsetune.errors import ConfigError
from vsetune.records.studies import Studies
from vsetune.study.preparation import prepare_study
from vsetune.study.run import run_study
from vsetune.study.trainable import AttemptTrainable, report_of

pytestmark = pytest.mark.filterwarnings("default")
STUDY: dict[str, Any] = {
    "study": "undisturbed", "plugins": ["half_hinge"],
    "data": {"path": "data/scenes", "scenes": {"train": 160, "validation": 40, "test": 16}},
    "networks": [{"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}}],
    "losses": [{"name": "half_hinge"}], "baseline": "half_hinge",
    "training": {"epochs": 2, "batch_size": 41, "validate_every_steps": 5, "learning_rate": 1e-3},
    "search": {"configurations": 1}, "seeds": [0], "resources": {"retries": 0, "checkpoint_share": 1},
}
SLOW_LOSS = LOSS.replace(
    "        similarity = inputs.similarity\n",
    "        import time\n        time.sleep(0.3)\n        similarity = inputs.similarity\n",
)


def test_every_gpu_of_a_trial_has_a_process() -> None:
    assert ResourceSpec(gpus=4, cpus=2).needs_of("vsepp", "lmh") == Needs(cpus=8, gpus=4.0, workers=4)
    assert ResourceSpec(workers=3).needs_of("vsepp", "lmh") == Needs(cpus=3, workers=3)
    assert ResourceSpec(gpus=0.5).needs_of("vsepp", "lmh") == Needs(cpus=1, gpus=0.5)
    cells = {"gsmn": {"workers": 2}, "gsmn.lmh": {"cpus": 2}}
    assert ResourceSpec.model_validate({"cells": cells}).needs_of("gsmn", "lmh") == Needs(cpus=4, workers=2)


@pytest.mark.parametrize(("resources", "key"), [
    ({"gpus": 4, "workers": 2}, "workers"), ({"gpus": 1, "workers": 2}, "workers"),
    ({"gpus": 4, "cells": {"gsmn": {"workers": 1}}}, "cells.gsmn.workers"),
])
def test_gpus_that_would_stand_idle_or_be_shared_are_refused(resources: dict[str, Any], key: str) -> None:
    with refused("VSE-C084", by=ValueError, key=key):
        try:
            ResourceSpec.model_validate(resources)
        except ValueError as error:
            raise ValueError(error.errors()[0]["ctx"]["error"].args[0]) from error  # type: ignore[attr-defined]


@pytest.fixture
def study_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A study file with these resources."""
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    assert SLOW_LOSS != LOSS
    write_loss(tmp_path / "half_hinge", loss=SLOW_LOSS)

    def write(name: str, **resources: Any) -> Path:
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(STUDY | {"study": name, "resources": STUDY["resources"] | resources}))
        return file

    return write


def test_a_network_that_cannot_be_divided_is_refused_before_the_study_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    file = tmp_path / "study.yaml"
    plain = STUDY | {
        "networks": [{"name": "sgraf_saf", "fixed": {"embedding_size": 8}}], "losses": [{"name": "lmh"}],
        "baseline": "lmh", "resources": {"workers": 2},
    }
    file.write_text(yaml.safe_dump({key: value for key, value in plain.items() if key != "plugins"}))
    with refused("VSE-T029", by=ConfigError, network="sgraf_saf", key="resources.workers"):
        prepare_study(file, Console(quiet=True))


def test_a_trial_that_loses_a_process_is_interrupted_and_goes_on_alone(tmp_path: Path, make_config: Any) -> None:
    with ray_here():
        worker = AttemptTrainable(make_config(Needs(cpus=2, workers=2)))
        opened = report_of(worker.step())
        assert opened["event"] == "opened", opened
        assert report_of(worker.step())["event"] == "point"
        helper().kill()
        report = report_of(worker.step())
        assert (report["event"], report["kind"]) == ("interrupted", "process")
        worker.cleanup()
    alone = AttemptTrainable(make_config(Needs()))
    opened = report_of(alone.step())
    assert len(opened["inherited"]) == 1
    alone.cleanup()


@pytest.mark.slow
def test_a_network_that_is_not_trained_has_the_scores_of_one_process(tmp_path: Path, make_config: Any) -> None:
    """`epochs: 0`: two processes share the one validation, the test split and a further test set."""

    def scores(needs: Needs) -> dict[str, float]:
        worker = AttemptTrainable(make_config(needs, folder=f"trial-{needs.workers}", epochs=0.0))
        assert report_of(worker.step())["event"] == "opened"
        report = report_of(worker.step())
        worker.cleanup()
        assert (report["is_finished"], report["point"]["step"]) == (True, 0)
        found = {"m_recall": report["point"]["m_recall"], **report["point"]["metrics"], **report["summary"]}
        return {name: value for name, value in found.items() if "recall" in name or "_r" in name or "rsum" in name}

    with ray_here():
        divided = scores(Needs(cpus=2, workers=2))
    assert {"i2t_r1", "test_rsum", "test.again.t2i_r10", "best_m_recall"} <= divided.keys()
    assert divided == scores(Needs())


@pytest.fixture
def make_config(
    study_of: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """The configuration of a worker without Ray, on the data of the study."""
    monkeypatch.setattr("vsetune.study.trainable.beat", lambda *_: False)
    prepare_study(study_of("data"), Console(quiet=True))
    trial = {
        "study": "tiny", "trial": "vsepp.lmh-c000-s0", "cell": "vsepp.lmh", "seed": 0,
        "data": {"path": str(tmp_path / "data" / "scenes"), "tests": {"again": {"split": "validation"}}},
        "network": {"name": "vsepp", "embedding_size": 8, "word_size": 6}, "loss": {"name": "lmh"},
    }
    training = {"epochs": 3.0, "batch_size": 41, "learning_rate": 0.01}
    return lambda needs, folder="trial", **changed: {
        "trial": trial | {"training": training | changed}, "phase": "search", "folder": str(tmp_path / folder),
        "home": None, "needs": asdict(needs), "reading": {"source": "stream"}, "checkpoint_share": 1.0,
        "signals": "none",
    }


@pytest.mark.slow
def test_a_killed_process_changes_no_curve(study_of: Callable[..., Path], tmp_path: Path) -> None:
    with ray_here():
        assert run(study_of("undisturbed"), resume=False) == "finished"
        with_two = study_of("disturbed", workers=2)
        with once(lambda: validated("disturbed") >= 1, lambda: helper().kill()):
            run(with_two, resume=False)
        killed_after = validated("disturbed")
        with once(lambda: validated("disturbed") >= killed_after + 1, lambda: os.kill(os.getpid(), signal.SIGINT)):
            run(study_of("disturbed"), resume=True)
        assert killed_after < validated("disturbed") < 4
        assert run(study_of("disturbed", workers=2), resume=True) == "finished"
    undisturbed, disturbed = (curve(name) for name in ("undisturbed", "disturbed"))
    assert [step for step, *_ in disturbed] == [step for step, *_ in undisturbed]
    for (_, recall, loss), (_, own_recall, own_loss) in zip(undisturbed, disturbed, strict=True):
        assert own_recall == pytest.approx(recall, abs=1e-9)
        assert own_loss == pytest.approx(loss, rel=1e-5)  # float32


@pytest.mark.slow
def test_a_trial_on_two_nodes_loses_one_and_goes_on_with_one_process(
    study_of: Callable[..., Path], tmp_path: Path
) -> None:
    """Two nodes of one core on this machine, with one home."""
    ensure_token_if_auth_enabled()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        second = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        assert run(study_of("undisturbed"), resume=False) == "finished"
        file = study_of("disturbed", workers=2)

        def leave() -> None:
            assert len({node["NodeID"] for node in ray.nodes() if node["Alive"]}) == 2
            assert helper()
            cluster.remove_node(second, allow_graceful=False)

        with once(lambda: validated("disturbed") >= 1, leave):
            run(file, resume=False)
        assert 0 < validated("disturbed") < 4
        assert run(study_of("disturbed"), resume=True) == "finished"
    finally:
        ray.shutdown()
        cluster.shutdown()
    undisturbed, disturbed = (curve(name) for name in ("undisturbed", "disturbed"))
    for (_, recall, loss), (_, own_recall, own_loss) in zip(undisturbed, disturbed, strict=True):
        assert own_recall == pytest.approx(recall, abs=1e-9)
        assert own_loss == pytest.approx(loss, rel=1e-5)  # float32


@contextlib.contextmanager
def ray_here() -> Iterator[None]:
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        yield
    finally:
        ray.shutdown()


def run(file: Path, *, resume: bool) -> str:
    console = Console(file=io.StringIO(), width=200)
    prepared = prepare_study(file, console)
    return run_study(prepared, resume=resume, retry_failed=False, address=None, console=console).ending


@contextlib.contextmanager
def once(holds: Callable[[], bool], act: Callable[[], None]) -> Iterator[None]:
    """Acts once while the block runs, as soon as the condition holds; it must have by the end."""
    is_over, has_acted = threading.Event(), threading.Event()

    def wait() -> None:
        while not is_over.wait(0.1):
            if holds():
                act()
                has_acted.set()
                return

    person = threading.Thread(target=wait)
    person.start()
    try:
        yield
    finally:
        is_over.set()
        person.join()
    assert has_acted.is_set()


def helper() -> psutil.Process:
    """The process beside the worker of the trial."""
    (found,) = [
        each for each in psutil.Process().children(recursive=True) if each.cmdline()[:1] == ["ray::_Helper.help"]
    ]
    return found


def curve(study: str) -> list[tuple[int, float, float]]:
    """Step, M-Recall and loss of the validations of the only trial."""
    points: dict[int, tuple[int, float, float]] = {}
    for attempt in Studies().attempts(study):
        for point in Studies().points(attempt.attempt_id):
            points[point.step] = (point.step, point.m_recall, point.metrics["train_loss"])
    return [points[step] for step in sorted(points)]


def validated(study: str) -> int:
    with contextlib.suppress(Exception):  # the study does not exist yet
        return len(curve(study))
    return 0
