"""A node that is taken away under a running study: its trial leaves with a checkpoint and loses nothing.

Run with `pytest -m slow -s tests/cluster/test_drained_node.py`; about two minutes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
import yaml
from ray_heads import end_all, environment_of, ray_command, running_head
from short_folders import place

from vsetune.records.log import LOG_FILE, lines_of
from vsetune.records.state import Attempt, StudyState

__all__ = ["place"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
ROOT = Path(__file__).parents[2]
PORT, DASHBOARD = 25479, 25565
STUDY = {
    "study": "drained",
    "data": {"path": "data/scenes", "scenes": {"train": 300, "validation": 100, "test": 8}},
    "networks": [{"name": "vsepp", "fixed": {"embedding_size": 64, "word_size": 32}}],
    "losses": [{"name": "lmh", "search": "none"}, {"name": "lsh", "search": "none"}],
    "training": {"epochs": 40, "batch_size": 50, "validate_every_steps": 300, "learning_rate": 1e-3},
    "scheduler": {"kind": "none"},
}
ONE_LEAVES = (
    "import sys; from vsetune.study.leaving_node import leave, nodes_here; "
    "leave(sys.argv[1], nodes_here(sys.argv[1])[0], 60, 'a test takes it')"
)


@contextmanager
def node(environment: Mapping[str, str], session: Path, number: int) -> Iterator[None]:
    process = subprocess.Popen(
        [
            ray_command(), "start", "--block", f"--address=127.0.0.1:{PORT}", "--num-cpus=1",
            "--node-ip-address=127.0.0.1", f"--dashboard-agent-listen-port={DASHBOARD + 20 + number}",
            f"--temp-dir={session}", "--disable-usage-stats",
        ],
        env=dict(environment), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        end_all(psutil.Process(process.pid))
        process.wait(timeout=30)


def run(*words: str, environment: Mapping[str, str]) -> str:
    done = subprocess.run(words, env=dict(environment), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def attempts(home: Path) -> list[Attempt]:
    """None before the study is there."""
    state = StudyState()
    for line in lines_of(home / "runs" / "drained" / LOG_FILE):
        state.read(line)
    return list(state.attempts.values())


def curves(home: Path) -> dict[str, tuple[tuple[float, float], ...]]:
    return {each.start.trial: each.curve for each in attempts(home) if each.status == "finished"}


def test_a_trial_leaves_a_drained_node_with_all_that_it_has_trained(place: Path) -> None:
    file = place / "drained.yaml"
    file.write_text(yaml.safe_dump(STUDY))
    environment = environment_of(place, dashboard_port=DASHBOARD) | {"PYTHONPATH": str(ROOT / "platform")}
    study = (sys.executable, "-m", "vsetune.cli.main", "study", "run", str(file))
    alone = environment | {"VSETUNE_HOME": str(place / "alone")}
    del alone["RAY_API_SERVER_ADDRESS"]
    run(*study, environment=alone)
    with ExitStack() as stack:
        stack.enter_context(running_head(environment, PORT, DASHBOARD, "--num-cpus=0", "--node-ip-address=127.0.0.1"))
        time.sleep(10)
        for number in (1, 2):
            stack.enter_context(node(environment, place / f"r{number}", number))
        with (place / "log").open("w") as log:
            driver = subprocess.Popen(
                [*study, "--address", f"127.0.0.1:{PORT}"], env=environment, stdout=log, stderr=subprocess.STDOUT,
            )
        until = time.monotonic() + 300
        while not all(len(each.curve) >= 1 for each in attempts(place / "home")) or len(attempts(place / "home")) < 2:
            assert driver.poll() is None, (place / "log").read_text()
            assert time.monotonic() < until, (place / "log").read_text()
            time.sleep(0.5)
        run(sys.executable, "-c", ONE_LEAVES, f"127.0.0.1:{PORT}", environment=environment)
        driver.wait(timeout=600)
        said = (place / "log").read_text()
    sys.stderr.write(said)
    assert driver.returncode == 0, said
    assert curves(place / "home") == curves(place / "alone")
    assert len(curves(place / "home")) == 2
    first, second = [each for each in attempts(place / "home") if each.start.number <= 2 and _moved(each, place)]
    assert (first.status, second.status) == ("killed", "finished")
    assert second.summary["wasted_epochs"] == 0.0, "it left in the middle of a window, and lost none of its steps"


def _moved(attempt: Attempt, place: Path) -> bool:
    """An attempt of the trial that was on the drained node."""
    trials = [each.start.trial for each in attempts(place / "home")]
    return trials.count(attempt.start.trial) == 2
