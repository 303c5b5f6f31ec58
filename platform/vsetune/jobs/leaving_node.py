"""A node that is about to go: Ray is told in time, so that its trials write checkpoints and move to other nodes.

    python -m vsetune.jobs.leaving_node spot HEAD:6379        waits for the notice of AWS, two minutes ahead
    python -m vsetune.jobs.leaving_node now HEAD:6379 SECONDS drains at once and waits for the trials here to end

The first runs beside `ray start` on spot nodes (cluster.yaml); Ray does not look for the notice itself. The second is
what Kubernetes runs before it stops a pod (jobs/kuberay/).
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil

from vsetune.errors import UsageError

METADATA = "http://169.254.169.254/latest"
"""Where AWS tells a machine about itself."""
_TOKEN_LASTS_S = 21600
_LOOK_EVERY_S = 5.0
_NOTICE_S = 120.0

_log = logging.getLogger(__name__)


def interruption(metadata: str = METADATA) -> float | None:
    """Seconds until this spot node is taken away; None while nobody has said so. OSError when AWS does not answer."""
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
    """Until the notice comes; the seconds that are left then. A question that is not answered is asked again."""
    while True:
        try:
            left = interruption(metadata)
        except OSError as error:
            _log.warning("%s: %s", metadata, error)
            left = None
        if left is not None:
            return left
        time.sleep(every_s)


def drain(address: str, seconds: float, why: str) -> None:
    """Tells Ray that the node this runs on leaves in so many seconds. UsageError when Ray does not accept it."""
    beside = Path(sys.executable).with_name("ray")
    ray_command = str(beside) if beside.exists() else shutil.which("ray") or "ray"
    done = subprocess.run(
        [ray_command, "drain-node", "--address", address, "--reason", "DRAIN_NODE_REASON_PREEMPTION",
         "--reason-message", why, "--deadline-remaining-seconds", str(int(seconds))],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "RAY_ADDRESS": address},
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing told"])[-1]
        raise UsageError(f"{address}: did not let this node go ({last}); its trials end with it, and resume elsewhere")


def wait_for_trials(seconds: float, *, busy: Callable[[], bool] | None = None) -> bool:
    """Until no worker of Ray on this node runs anything, at most so long; whether all have ended."""
    busy = busy or _works_here
    until = time.monotonic() + seconds
    while busy():
        if time.monotonic() >= until:
            return False
        time.sleep(1.0)
    return True


def _works_here() -> bool:
    """Ray names its workers: `ray::IDLE`, or `ray::` and what they run."""
    names = (process.info["cmdline"] for process in psutil.process_iter(["cmdline"]))
    return any(words and words[0].startswith("ray::") and words[0] != "ray::IDLE" for words in names)


def main(words: Sequence[str]) -> int:
    """The command above; exit code 0 when all trials moved on, 1 when some were still there, 2 when misused."""
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        if len(words) == 2 and words[0] == "spot":
            seconds, why = wait_for_interruption(), "AWS takes this spot node back"
        elif len(words) == 3 and words[0] == "now" and words[2].isdigit():
            seconds, why = float(words[2]), "the pod is stopped"
        else:
            raise UsageError(f"got {' '.join(words) or 'nothing'}, need `spot HEAD:PORT` or `now HEAD:PORT SECONDS`")
        drain(words[1], seconds, why)
    except UsageError as error:
        _log.error("%s", error)
        return 2
    _log.info("%s in %.0f s: Ray was told", why, seconds)
    return 0 if wait_for_trials(seconds) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
