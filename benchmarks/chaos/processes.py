"""Processes that we start, and whatever they start in turn.

Ray's processes leave the tree of the driver that started them when it dies. This process therefore adopts orphans
(Linux: PR_SET_CHILD_SUBREAPER), so that whatever a driver leaves behind is found among our own descendants.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

_PR_SET_CHILD_SUBREAPER = 36

class Processes:
    """Starts processes and finds their descendants. One per program."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._started: dict[int, subprocess.Popen[bytes]] = {}
        self._servers: set[int] = set()

    def start(
        self, command: Sequence[str], *, env: Mapping[str, str], stdout: Path, stderr: Path, is_server: bool = False
    ) -> subprocess.Popen[bytes]:
        """In a session of its own, output appended to files. A server is never counted among what a driver left."""
        with stdout.open("ab") as out, stderr.open("ab") as err:
            process = subprocess.Popen(
                command, env=dict(env), stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )
        self._started[process.pid] = process
        if is_server:
            self._servers.add(process.pid)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """The process and its whole group, at once; returns when it is gone."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=30)

    def of_drivers(self) -> list[psutil.Process]:
        """Every living descendant that is neither a server nor of one, the oldest first."""
        self._reap()
        servers = {pid for server in self._servers for pid in _tree(server)}
        found = [each for each in psutil.Process().children(recursive=True) if each.pid not in servers]
        return sorted((each for each in found if _is_alive(each)), key=lambda each: each.create_time())

    def end_drivers(self) -> None:
        """Kills whatever `of_drivers` finds, and what that sets free in dying."""
        for _ in range(5):
            left = self.of_drivers()
            kill_all(left)
            if not left:
                return
            wait_until_gone(left, 5.0)

    def _reap(self) -> None:
        """Waits for dead orphans; the dead of `start` belong to whoever asks their Popen."""
        for each in psutil.Process().children():
            if each.pid not in self._started and not _is_alive(each):
                try:
                    os.waitpid(each.pid, os.WNOHANG)
                except ChildProcessError:
                    continue


def title(process: psutil.Process) -> str:
    """Its command line in one line; empty when it is gone."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def named(processes: Sequence[psutil.Process], word: str) -> list[psutil.Process]:
    """Those whose program is `word`: `raylet`, `gcs_server`, or `trial` for a Ray worker that runs one."""
    return [each for each in processes if _is(title(each), word)]


def kill_all(processes: Sequence[psutil.Process]) -> None:
    """With SIGKILL; those that are gone already are fine."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def wait_until_gone(processes: Sequence[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Those that still live after timeout_s."""
    deadline = time.monotonic() + timeout_s
    left = [each for each in processes if _is_alive(each)]
    while left and time.monotonic() < deadline:
        time.sleep(0.2)
        left = [each for each in left if _is_alive(each)]
    return left


def _is(command: str, word: str) -> bool:
    if word == "trial":
        return command.startswith("ray::") and "Trainable" in command  # not Ray's own agents, nor idle workers
    return Path(command.split(" ")[0]).name == word


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _tree(pid: int) -> set[int]:
    try:
        return {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
    except psutil.NoSuchProcess:
        return {pid}
