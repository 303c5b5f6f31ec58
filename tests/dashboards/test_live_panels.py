"""A real Prometheus reads a real study: every panel returns data, and the alert rules fire on planted faults.

One Ray node with a price, one study: two trials train, a third fails for good, and the tracking store is away.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml
from plugin_folders import write_loss

from watching.answers import Answer, Span, ask_all, table
from watching.page import to_html
from watching.prometheus_api import PrometheusError, Server

ROOT = Path(__file__).parents[2]
PORT, DASHBOARD_PORT, PROMETHEUS_PORT = 24379, 24265, 24090
NOBODY = "http://127.0.0.1:24999"
LOWERED = {"> 900)": "> 20)", "> 1800": "> 20", "> 500": "> 0", ">= 5)": ">= 1)"}
"""Thresholds of the rules for this test; those of every day are tried by promtool."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not on PATH"),
    pytest.mark.timeout(900),
]


@dataclass
class Watched:
    """What runs: a node of Ray, the driver of the study, and Prometheus."""

    home: Path
    ray: subprocess.Popen[str]
    driver: subprocess.Popen[str]
    prometheus_process: subprocess.Popen[str]
    prometheus: Server

    def workers(self) -> list[psutil.Process]:
        below = psutil.Process(self.ray.pid).children(recursive=True)
        return [each for each in below if "Trainable" in " ".join(each.cmdline())]

    def answers(self) -> list[Answer]:
        return ask_all(self.prometheus, Span.until(time.time(), hours=0.1, step_s=5.0))

    def firing(self) -> set[str]:
        return {alert["labels"]["alertname"] for alert in self.prometheus.alerts() if alert["state"] == "firing"}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    token = folder / "token"
    token.write_text("a" * 48)
    environment = os.environ | {
        "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "VSETUNE_HOME": str(folder / "home"),
        "PYTHONPATH": str(ROOT / "platform"), "OMP_NUM_THREADS": "1",
    }
    with contextlib.ExitStack() as stack:
        ray = started(stack, environment, [
            str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", f"--port={PORT}", "--num-cpus=2",
            "--node-ip-address=127.0.0.1", f"--dashboard-port={DASHBOARD_PORT}", "--disable-usage-stats",
            "--labels=vsetune.io/node-type=laptop,vsetune.io/usd-per-hour=36",
        ])
        prometheus = started(stack, environment, [
            sys.executable, "dashboards/up.py", "--port", str(PROMETHEUS_PORT),
        ])
        driver = started(stack, environment, [
            sys.executable, "-m", "vsetune.cli.main", "study", "run", str(write_study(folder)),
            "--address", f"127.0.0.1:{PORT}",
        ])
        yield Watched(folder / "home", ray, driver, prometheus, Server(f"http://127.0.0.1:{PROMETHEUS_PORT}"))


def started(stack: contextlib.ExitStack, environment: dict[str, str], command: list[str]) -> subprocess.Popen[str]:
    """It and whatever it starts end with the test. What it prints goes to the test's own output."""
    process = subprocess.Popen(command, env=environment, cwd=ROOT, text=True)

    def end() -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
        process.wait(timeout=30)

    stack.callback(end)
    return process


def write_study(folder: Path) -> Path:
    broken = "\n\ndef hardest(similarity):\n    raise ValueError('planted by a test')\n"
    write_loss(folder / "half_hinge", negatives=broken)
    path = folder / "watched.yaml"
    path.write_text(yaml.safe_dump({
        "study": "watched", "plugins": ["half_hinge"],
        "data": {"path": "data/scenes", "scenes": {"train": 400, "validation": 50, "test": 50}},
        "networks": [{"name": "vsepp", "fixed": {"embedding_size": 32, "word_size": 16}}],
        "losses": [{"name": "half_hinge"}, {"name": "lmh"}, {"name": "lseh"}], "baseline": "lmh",
        "training": {"epochs": 1000, "batch_size": 40, "validate_every_steps": 50, "learning_rate": 1e-3},
        "search": {"configurations": 1}, "scheduler": {"kind": "none"}, "seeds": [0],
        "tracking": {"uri": NOBODY}, "resources": {"cpus": 1},
    }))
    return path


def eventually(what: Callable[[], bool], *, within_s: float, said: Callable[[], object]) -> None:
    """Asked every two seconds. Prometheus may not have started yet."""
    deadline = time.monotonic() + within_s
    while True:
        with contextlib.suppress(PrometheusError):
            if what():
                return
        assert time.monotonic() < deadline, said()
        time.sleep(2)


def test_every_panel_of_a_running_study_returns_data(watched: Watched) -> None:
    def empty() -> list[str]:
        return [answer.panel.title for answer in watched.answers() if not answer.points and not answer.panel.needs]

    eventually(lambda: empty() == [], within_s=400, said=empty)
    eventually(lambda: len(watched.workers()) == 2, within_s=60, said=watched.workers)
    time.sleep(30)  # so that there are curves to be seen
    answers = watched.answers()
    page = to_html(answers, Span.until(time.time(), hours=0.1, step_s=5.0), source="a test")
    (watched.home / "board.html").write_text(page)
    (watched.home / "panels.md").write_text(table(answers))
    cost = next(answer for answer in answers if answer.panel.title == "Cost per hour")
    assert cost.curves[0].points[-1][1] == pytest.approx(36, rel=0.3)  # both of the node's CPUs are held


def test_the_alert_rules_fire_on_planted_faults(watched: Watched) -> None:
    rules = watched.home / "prometheus" / "alerts.yaml"
    text = rules.read_text()
    for usual, lowered in LOWERED.items():
        assert usual in text
        text = text.replace(usual, lowered)
    plain = yaml.safe_load(text)
    for rule in plain["groups"][0]["rules"]:
        rule["for"] = "0s"
    rules.write_text(yaml.safe_dump(plain))
    watched.prometheus_process.send_signal(signal.SIGHUP)  # it reads its rules again
    fired: set[str] = set()

    def fires(*names: str) -> Callable[[], bool]:
        def ask() -> bool:
            fired.update(watched.firing())
            return fired >= set(names)
        return ask

    at_once = ("VsetuneAttemptsFail", "VsetuneJournalBacklog", "VsetuneSpend")  # a broken loss, no store, 36 USD/h
    eventually(fires(*at_once), within_s=120, said=lambda: (at_once, fired))
    workers = watched.workers()
    for worker in workers:
        worker.suspend()
    stopped = ("VsetuneTrialWithoutValidation", "VsetuneStudyStuck")
    eventually(fires(*stopped), within_s=120, said=lambda: (stopped, fired))
    for worker in workers:
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.resume()
    watched.driver.kill()
    eventually(fires("VsetuneDriverGone"), within_s=120, said=lambda: fired)
    (watched.home / "fired.json").write_text(json.dumps(sorted(fired)))
