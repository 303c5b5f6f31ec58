"""Draining of a node: Ray places no more work on it, and its trials write checkpoints and move to other nodes.

    python -m vsetune.study.leaving_node spot HEAD:6379        waits for the notice of AWS, two minutes ahead
    python -m vsetune.study.leaving_node now HEAD:6379 SECONDS begins at once; waits for the trials here to end

The first runs beside `ray start` on spot nodes (cluster.yaml), since Ray does not look for the notice. Kubernetes runs
the second before it stops a pod (jobs/kuberay/).
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from vsetune.errors import UsageError

METADATA = "http://169.254.169.254/latest"
"""Address of AWS's instance metadata."""
_TOKEN_LASTS_S = 21600
_LOOK_EVERY_S = 5.0
_NOTICE_S = 120.0
_TRIAL = "ray::AttemptTrainable"
_NO_WORK = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent", "ray::SignalsBoard")
"""Process names that do not count as work: Ray's own processes below a raylet, waiting workers, and the actor of
`signals`, which moves when its node dies."""

_log = logging.getLogger(__name__)


def interruption(metadata: str = METADATA) -> float | None:
    """Seconds until this spot node is taken away; None without a notice. OSError when AWS does not answer."""
    ask = urllib.request.Request(
        f"{metadata}/api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_LASTS_S)}
    )
    with urllib.request.urlopen(ask, timeout=2) as answer:
        token = answer.read().decode()
    look = urllib.request.Request(
        f"{metadata}/meta-data/spot/instance-action", headers={"X-aws-ec2-metadata-token": token}
    )
    try:
        with urllib.request.urlopen(look, timeout=2) as answer:
            notice = json.loads(answer.read())
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise
    at = datetime.strptime(notice["time"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return min(max(at.timestamp() - time.time(), 0.0), _NOTICE_S)


def wait_for_interruption(metadata: str = METADATA, *, every_s: float = _LOOK_EVERY_S) -> float:
    """Waits for the notice; returns the seconds that are left then. A request without an answer is repeated."""
    while True:
        try:
            left = interruption(metadata)
        except OSError as error:
            _log.warning("%s: %s", metadata, error)
            left = None
        if left is not None:
            return left
        time.sleep(every_s)


@dataclass(frozen=True)
class NodeHere:
    """A cluster's worker node on this machine. id: Ray's. raylet: its process, whose children are the workers."""

    id: str
    raylet: psutil.Process

    @classmethod
    def of(cls, address: str) -> NodeHere:
        """The node of this machine. address: of the cluster. UsageError if there is none here, or more than one, which
        only tests have."""
        found = nodes_here(address)
        if len(found) != 1:
            there = ", ".join(node.id for node in found) or "none"
            raise UsageError(
                "VSE-S040", "{address}: need one worker node of this cluster on this machine, found: {nodes}",
                address=address, nodes=there,
            )
        return found[0]

    def works(self) -> bool:
        """Whether any work runs here. Ray names a worker `ray::IDLE`, or `ray::` and its work."""
        return any(not name.startswith(_NO_WORK) for name, _ in self._workers())

    def ask_trials_to_leave(self) -> None:
        """Asks the trials here to write a checkpoint after the current step and to leave."""
        for name, process in self._workers():
            if name.startswith(_TRIAL):
                with contextlib.suppress(psutil.Error):
                    process.terminate()

    def _workers(self) -> Iterator[tuple[str, psutil.Process]]:
        for child in self.raylet.children(recursive=True):
            for name in _words_of(child)[:1]:
                if name.startswith("ray::"):
                    yield name, child


def nodes_here(address: str) -> list[NodeHere]:
    """The worker nodes of a cluster on this machine. address: of the cluster, HOST:PORT."""
    port = address.rpartition(":")[2]
    return [
        NodeHere(options["node_id"], process)
        for process, options in _raylets() if options.get("gcs-address", "").rpartition(":")[2] == port
    ]


def leave(address: str, node: NodeHere, seconds: float, why: str) -> None:
    """Makes Ray place no more work on a node that will be gone in `seconds`, and asks its trials to leave.

    UsageError if Ray does not accept the request.
    """
    _drain(address, node, seconds, why)
    node.ask_trials_to_leave()


def _drain(address: str, node: NodeHere, seconds: float, why: str) -> None:
    beside = Path(sys.executable).with_name("ray")
    ray_command = str(beside) if beside.exists() else shutil.which("ray") or "ray"
    done = subprocess.run(
        [ray_command, "drain-node", "--address", address, "--node-id", node.id, "--reason",
         "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", why, "--deadline-remaining-seconds", str(int(seconds))],
        capture_output=True, text=True, timeout=60, check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UsageError(
            "VSE-S041", "{address}: did not let this node go ({reason}); its trials end with it, and resume elsewhere",
            address=address, reason=last,
        )


def wait_for_trials(seconds: float, works: Callable[[], bool]) -> bool:
    """Waits until no work runs on this node, at most `seconds`; returns whether all has ended."""
    until = time.monotonic() + seconds
    while works():
        if time.monotonic() >= until:
            return False
        time.sleep(0.5)
    return True


def _raylets() -> Iterator[tuple[psutil.Process, dict[str, str]]]:
    """The raylets of worker nodes on this machine, with their options; a head is never drained."""
    for process in psutil.process_iter():
        words = _words_of(process)
        if words and Path(words[0]).name == "raylet" and "--head" not in words:
            options = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
            if "node_id" in options:
                yield process, options


def _words_of(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:  # it has ended
        return []


def main(words: Sequence[str]) -> int:
    """The command above. Exit code 0: all trials have left; 1: some have not; 2: misuse, or draining was refused."""
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        if len(words) == 2 and words[0] == "spot":
            seconds, why = wait_for_interruption(), "AWS takes this spot node back"
        elif len(words) == 3 and words[0] == "now" and words[2].isdigit():
            seconds, why = float(words[2]), "the pod is stopped"
        else:
            raise UsageError(
                "VSE-S042", "got {got}, need `spot HEAD:PORT` or `now HEAD:PORT SECONDS`",
                got=" ".join(words) or "nothing",
            )
        node = NodeHere.of(words[1])
        leave(words[1], node, seconds, why)
    except UsageError as error:
        _log.error("%s", error)
        return 2
    _log.info("%s in %.0f s: Ray drains it", why, seconds)
    return 0 if wait_for_trials(seconds, node.works) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
