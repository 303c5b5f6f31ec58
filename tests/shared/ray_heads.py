"""A head node of Ray of a test's own, with token authentication, on ports of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

BIN = Path(sys.executable).parent


def ray_command() -> str:
    found = shutil.which("ray", path=str(BIN))
    assert found, "the `ray` command is not beside this Python"
    return found


def environment_of(folder: Path, *, dashboard_port: int) -> dict[str, str]:
    """For the head and for whoever talks to it: a token in `folder`, a home below it, jobs that find this Python."""
    token = folder / "token"
    token.write_text("a" * 48)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "AWS_", "MLFLOW_"))}
    return kept | {
        "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "VSETUNE_HOME": str(folder / "home"),
        "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard_port}", "PYTHONPATH": "", "OMP_NUM_THREADS": "1",
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "MLFLOW_DISABLE_TELEMETRY": "true",
    }


@contextlib.contextmanager
def running_head(
    environment: dict[str, str], port: int, dashboard_port: int, *options: str
) -> Iterator[psutil.Process]:
    """The process of `ray start --block`. It is ended by killing its processes: `ray stop` would end every Ray here.

    The ports behind `dashboard_port` are taken too, and the session lies in a folder of its own: at its default ports a
    second head finds the agent of the first, in one folder `auto` means the head that was started last.
    """
    agent, metrics, client, runtime_env = (f"{dashboard_port + place}" for place in range(1, 5))
    with short_folder() as folder:
        yield from _started(environment, [
            f"--port={port}", f"--dashboard-port={dashboard_port}", f"--dashboard-agent-listen-port={agent}",
            f"--metrics-export-port={metrics}", f"--ray-client-server-port={client}",
            f"--runtime-env-agent-port={runtime_env}", "--disable-usage-stats", f"--temp-dir={folder}", *options,
        ])


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """For sessions of Ray: the names of the sockets in it may have 107 characters."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _started(environment: dict[str, str], options: Sequence[str]) -> Iterator[psutil.Process]:
    process = subprocess.Popen(
        [ray_command(), "start", "--head", "--block", *options],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    head = psutil.Process(process.pid)
    try:
        yield head
    finally:
        end_all(head)
        process.wait(timeout=30)


def end_all(*processes: psutil.Process) -> None:
    """Kills them and all that they started."""
    found: Sequence[psutil.Process] = [
        each for process in processes for each in [*process.children(recursive=True), process]
    ]
    for each in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
