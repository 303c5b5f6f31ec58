"""A study on a cluster without any shared folder: nodes come, go and die, servers are restarted, the driver moves.

Every trial ends once, and curves and board are those of an undisturbed run on one machine. What was seen on the way is
printed (`-s`): nodes, trials that ran at once, what was done to them.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psutil
import pytest
import yaml
from ray_heads import end_all, environment_of, ray_command, running_head
from short_folders import place

from chaos.comparison import compare, doubts
from chaos.processes import Processes
from chaos.recorded import read, read_board
from chaos.servers import BUCKET, s3_server, tracking_server

__all__ = ["place"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]
ROOT = Path(__file__).parents[2]
PORT, DASHBOARD = 25379, 25265
TRIALS, MOST_NODES = 24, 4
STUDY = {
    "study": "rehearsal",
    "data": {"path": "data/scenes", "scenes": {"train": 300, "validation": 100, "test": 8}},
    "networks": [{"name": "vsepp", "fixed": {"embedding_size": 64, "word_size": 32}}],
    "losses": [{"name": "lmh"}, {"name": "lsh"}, {"name": "info_nce"}, {"name": "lseh"}],
    "training": {"epochs": 9, "batch_size": 50, "validate_every_steps": 10, "learning_rate": 1e-3},
    "search": {"configurations": 4, "sampler": "random"}, "scheduler": {"kind": "none"}, "seeds": [0, 1, 2],
}
CLUSTER = {
    "cluster_name": "rehearsal", "max_workers": MOST_NODES, "head_node_type": "head",
    "available_node_types": {
        "head": {"resources": {"CPU": 0}, "node_config": {}},
        "spot": {
            "resources": {"CPU": 1}, "max_workers": MOST_NODES, "node_config": {},
            "labels": {"vsetune.io/node-type": "spot", "vsetune.io/usd-per-hour": "0.36"},
        },
    },
}


class Rehearsal:
    """A head, nodes that come and go, each with a folder of its own, and what is known of the study meanwhile."""

    def __init__(self, place: Path, environment: Mapping[str, str], database: Path) -> None:
        self._place, self._environment, self._database = place, dict(environment), database
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._began = time.monotonic()
        self.concurrency: list[tuple[int, int]] = []
        """(nodes there, trials that ran at once), whenever one of them changed."""

    def add_node(self, name: str) -> None:
        folder, session = self._place / name, self._place / f"r-{name[-1]}"
        folder.mkdir()
        number = 1 + len(list(self._place.glob("node-*")))
        self._nodes[name] = subprocess.Popen(
            [
                ray_command(), "start", "--block", f"--address=127.0.0.1:{PORT}", "--num-cpus=1",
                "--node-ip-address=127.0.0.1", f"--dashboard-agent-listen-port={DASHBOARD + 20 + number}",
                "--labels=vsetune.io/node-type=spot,vsetune.io/usd-per-hour=0.36", f"--temp-dir={session}",
                "--disable-usage-stats",
            ],
            env=self._environment | {"VSETUNE_NODE_FOLDER": str(folder / "home"), "HOME": str(folder)},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )

    def kill_node(self, name: str) -> None:
        process = self._nodes.pop(name)
        end_all(psutil.Process(process.pid))
        process.wait(timeout=30)
        shutil.rmtree(self._place / name)

    def end(self) -> None:
        for name in list(self._nodes):
            self.kill_node(name)

    def say(self, what: str) -> None:
        sys.stderr.write(f"{time.monotonic() - self._began:6.0f} s  {what}\n")

    def wait(self, condition: Callable[[], bool], what: str, *, at_most_s: float = 600) -> None:
        deadline = time.monotonic() + at_most_s
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {at_most_s:g} s; {self.statuses()}"
            seen = (len(self._nodes), self.statuses().get("running", 0))
            if not self.concurrency or self.concurrency[-1] != seen:
                self.concurrency.append(seen)
            time.sleep(0.5)
        self.say(what)

    def statuses(self) -> dict[str, int]:
        """Attempts by status, as the tracking server has them; nothing before it has any."""
        try:
            with closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True, timeout=30)) as connection:
                rows = connection.execute(
                    "SELECT s.value, COUNT(*) FROM tags k JOIN tags s ON s.run_uuid = k.run_uuid "
                    "WHERE k.key = 'vsetune.kind' AND k.value = 'attempt' AND s.key = 'status' GROUP BY s.value"
                )
                return {str(status): int(count) for status, count in rows.fetchall()}
        except sqlite3.OperationalError:
            return {}

    def finished(self, count: int) -> Callable[[], bool]:
        return lambda: self.statuses().get("finished", 0) >= count

    def runs(self, count: int) -> Callable[[], bool]:
        return lambda: self.statuses().get("running", 0) == count

    def submit(self, file: Path, machine: str) -> str:
        """The job's name, from a driver whose own folder is another one each time."""
        wanted = {"env_vars": {"VSETUNE_NODE_FOLDER": str(self._place / machine)}}
        said = self._ray_job(
            "submit", "--no-wait", "--working-dir", str(ROOT), "--runtime-env-json", json.dumps(wanted), "--",
            "python", "jobs/sweep.py", str(file),
        )
        return next(word.strip("'") for word in said.split() if word.strip("'").startswith("raysubmit_"))

    def status(self, job: str) -> str:
        """What Ray says of a job. One that failed fails the test: what it printed may say "running" as well."""
        said = self._ray_job("status", job).lower()
        assert f"'{job.lower()}' failed" not in said, self.logs(job)
        return said

    def stop(self, job: str) -> None:
        self._ray_job("stop", job)

    def logs(self, job: str) -> str:
        return self._ray_job("logs", job)

    def _ray_job(self, *words: str) -> str:
        done = subprocess.run(
            [ray_command(), "job", words[0], "--address", f"http://127.0.0.1:{DASHBOARD}", *words[1:]],
            env=self._environment, capture_output=True, text=True, timeout=300, check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr


@contextmanager
def cluster(place: Path, environment: dict[str, str], database: Path) -> Iterator[Rehearsal]:
    """A head that runs no trials, and nothing else yet."""
    options = ("--num-cpus=0", "--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1")
    with running_head(environment, PORT, DASHBOARD, *options):
        rehearsal = Rehearsal(place, environment, database)
        try:
            yield rehearsal
        finally:
            rehearsal.end()


def command(environment: Mapping[str, str], *words: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "vsetune.cli.main", *map(str, words)], env=dict(environment), capture_output=True,
        text=True, timeout=1200, check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_study_on_nodes_that_come_go_and_die_is_the_undisturbed_one(place: Path) -> None:
    study, types = place / "rehearsal.yaml", place / "types.yaml"
    study.write_text(yaml.safe_dump(STUDY))
    types.write_text(yaml.safe_dump(CLUSTER))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "AWS_", "MLFLOW_"))}
    alone = kept | {
        "VSETUNE_HOME": str(place / "alone"), "PYTHONPATH": str(ROOT / "platform"), "OMP_NUM_THREADS": "1",
        "RAY_TMPDIR": str(place), "RAY_AUTH_MODE": "token",
    }
    command(alone, "study", "run", study)
    board = read_board(command(alone, "leaderboard", "show", "rehearsal", "--json"))
    undisturbed = read(place / "alone" / "runs" / "rehearsal", board)
    assert doubts(undisturbed, fewest=TRIALS) == []

    with ExitStack() as stack:
        processes = Processes()
        s3, reaches_s3 = s3_server(place, processes, megabytes=4096)
        stack.enter_context(s3.running())  # before the next server looks for free ports
        tracking, tracking_uri, tracking_database = tracking_server(place, processes)
        stack.enter_context(tracking.running())
        environment = environment_of(place, dashboard_port=DASHBOARD) | reaches_s3 | {
            "VSETUNE_HOME": f"s3://{BUCKET}/home", "VSETUNE_NODE_FOLDER": str(place / "head"),
            "MLFLOW_TRACKING_URI": tracking_uri, "VSETUNE_CLUSTER": str(types),
            "RAY_BACKEND_LOG_LEVEL": "error", "RAY_health_check_period_ms": "1000",
        }
        there = stack.enter_context(cluster(place, environment, tracking_database))
        there.wait(lambda: is_up(environment), "the head answers")
        job = there.submit(study, "first-machine")
        time.sleep(20)
        assert "running" in there.status(job)
        there.say("0 nodes: the study waits")
        for name in ("node-1", "node-2", "node-3", "node-4"):
            there.add_node(name)
        there.wait(there.runs(4), "4 nodes: 4 trials at once")
        there.wait(there.finished(4), "4 trials have finished")
        there.kill_node("node-1")
        there.kill_node("node-2")
        there.wait(there.runs(2), "2 nodes were killed: 2 trials at once")
        there.wait(there.finished(7), "7 trials have finished")
        there.add_node("node-5")
        there.add_node("node-6")
        there.wait(there.runs(4), "2 nodes were added: 4 trials at once")
        with s3.down():
            time.sleep(8)
        there.say("the S3 server was away for 8 s")
        there.wait(there.finished(11), "11 trials have finished")
        with tracking.down():
            time.sleep(8)
        there.say("MLflow was away for 8 s")
        there.wait(there.finished(15), "15 trials have finished")
        there.stop(job)
        there.wait(lambda: "stopped" in there.status(job), "the driver was stopped")
        shutil.rmtree(place / "first-machine")
        job = there.submit(study, "second-machine")
        there.wait(lambda: "succeeded" in there.status(job), "the driver, submitted from another machine, is done")

        shown = command(
            environment | {"PYTHONPATH": str(ROOT / "platform"), "VSETUNE_NODE_FOLDER": str(place / "reader")},
            "leaderboard", "show", "rehearsal", "--json",
        )
        there.say(f"(nodes, trials at once): {there.concurrency}")
    disturbed = read(place / "reader" / "runs" / "rehearsal", read_board(shown))
    assert compare(undisturbed, disturbed) == []
    assert len(disturbed.last()) == TRIALS
    assert max(ran for nodes, ran in there.concurrency if nodes == MOST_NODES) == MOST_NODES
    assert all(row["cost"]["usd"] > 0 for row in json.loads(shown)["rows"])


def is_up(environment: Mapping[str, str]) -> bool:
    done = subprocess.run(
        [ray_command(), "job", "list", "--address", f"http://127.0.0.1:{DASHBOARD}"], env=dict(environment),
        capture_output=True, timeout=60, check=False,
    )
    return done.returncode == 0
