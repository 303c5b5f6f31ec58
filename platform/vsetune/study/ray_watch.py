"""Watch over Ray's processes during a study. It notices that Ray has died, and ends the study within a minute.

Ray itself waits forever for a raylet that died on this machine, and ends the driver from C++ when the GCS is gone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import psutil
import ray

from vsetune.storage.foreign_text import one_line
from vsetune.study.ray_guardian import Guardian
from vsetune.study.stopping import StopRequest

LOOK_EVERY_S = 1.0
_LOOK_WHILE_STARTING_S = 0.5
SILENT_FOR_S = 10.0
"""How long the head of a cluster may be unreachable before it counts as gone."""
LEAVE_WITHIN_S = 30.0
"""Time after a request to stop before the process exits without waiting for Ray any longer."""
INTERRUPTED = 130
_log = logging.getLogger(__name__)
_PARTS = {"raylet": "the raylet", "gcs_server": "the GCS"}


class RayParts(Protocol):
    """The processes that a study's Ray depends on."""

    def lost(self) -> str | None:
        """The part that has died, as one phrase; None while all parts are alive."""

    def clean_up(self) -> None:
        """Ends the remaining processes if this process started them."""


@dataclass
class LocalRay:
    """A Ray that this process started. parts: its child processes raylet and GCS, with their names. below: all
    processes of it."""

    parts: Mapping[psutil.Process, str]
    below: set[psutil.Process]
    guardian: Guardian = field(default_factory=Guardian)

    def __post_init__(self) -> None:
        self.guardian.watch_over(self.below)

    @classmethod
    def started_since(cls, before: set[psutil.Process]) -> LocalRay:
        """The Ray that has just started. before: the `children` from before the start, which do not belong to it: an
        earlier Ray may have left dead processes."""
        new = children() - before
        return cls({child: _PARTS[child.name()] for child in new if child.name() in _PARTS}, new)

    def lost(self) -> str | None:
        for part, name in self.parts.items():
            if not _is_alive(part):
                return f"{name} died"
            with contextlib.suppress(psutil.Error):
                self.below.update(part.children(recursive=True))
        self.guardian.watch_over(self.below)
        return None

    def clean_up(self) -> None:
        for process in self.below:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.guardian.dismiss()


@dataclass
class RemoteRay:
    """A cluster that this process did not start. address: of its GCS. node: id of the node of this driver."""

    address: str
    node: str
    last_seen: float
    next_look: float = 0.0

    @classmethod
    def of_this_driver(cls) -> RemoteRay:
        """The cluster that this process is connected to."""
        context = ray.get_runtime_context()
        return cls(context.gcs_address, context.get_node_id(), time.monotonic())

    def lost(self) -> str | None:
        now = time.monotonic()
        if now < self.next_look:
            return None
        self.next_look = now + 3.0
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=3.0).close()
        except OSError:
            return f"the GCS at {self.address} is gone" if now - self.last_seen > SILENT_FOR_S else None
        self.last_seen = time.monotonic()
        if any(node["NodeID"] == self.node and not node["Alive"] for node in ray.nodes()):
            return "the raylet of this node died"
        return None

    def clean_up(self) -> None:
        """Does nothing: other people's jobs run there."""


class RayWatch:
    """A thread that checks the parts of Ray, and the time since a request to stop, while `watching`."""

    def __init__(self, parts: RayParts, stop: StopRequest, *, farewell: str) -> None:
        """farewell: the line to print when the process cannot end normally."""
        self._parts, self._stop, self._farewell = parts, stop, farewell
        self._over = threading.Event()
        self._has_failed = False
        self._thread = threading.Thread(target=self._look, name="vsetune-ray-watch", daemon=True)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watches the parts inside the context; ends those of this process afterwards."""
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._parts.clean_up()

    def _look(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            if not self._stop.is_requested:
                lost = self._lost()
                if lost is not None:
                    self._stop.request(f"the death of Ray ({lost})", leaves_time=False)
            elif time.monotonic() - self._stop.since > LEAVE_WITHIN_S:
                self._leave()

    def _lost(self) -> str | None:
        """The part that has died, or None. A check that fails is logged once and repeated at the next look."""
        try:
            return self._parts.lost()
        except Exception as error:
            if not self._has_failed:
                _log.warning("whether Ray lives cannot be told for now (%s: %s)", type(error).__name__, one_line(error))
            self._has_failed = True
            return None

    def _leave(self) -> None:
        """Exits at once. Everything finished is on disk, and the next run of the study continues from there."""
        os.write(2, f"\ninterrupted by {self._stop.reason}; {self._farewell}\n".encode())
        self._parts.clean_up()
        os._exit(INTERRUPTED)


def children() -> set[psutil.Process]:
    """All processes below this one, including zombies."""
    return set(psutil.Process().children(recursive=True))


@contextmanager
def ended_unless_started() -> Iterator[None]:
    """Ends the processes of a Ray whose start inside the context fails. They are collected during the start, because
    agents outlive the raylet that started them and then have no parent here."""
    before, begun, is_over = children(), set[psutil.Process](), threading.Event()

    def look() -> None:
        while not is_over.wait(_LOOK_WHILE_STARTING_S):
            begun.update(children() - before)

    looking = threading.Thread(target=look, name="vsetune-ray-start", daemon=True)
    looking.start()
    try:
        yield
    except BaseException:
        for process in begun | (children() - before):
            with contextlib.suppress(psutil.Error):
                process.kill()
        raise
    finally:
        is_over.set()
        looking.join()


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
