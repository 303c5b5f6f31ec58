"""What can go wrong, each a block: entering it does the damage, leaving it ends what can be ended."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

import psutil

from chaos.processes import named
from chaos.servers import Server

Needs = Literal["nothing", "file", "server", "small_disk"]
"""`file`: a sweep that is exported to a SQLite file. `server`: to an MLflow server. `small_disk`: home is a tmpfs."""


class NothingToHit(Exception):
    """The victim is not there (yet)."""


@dataclass(frozen=True)
class Scene:
    """What a disturbance may touch. ours: the processes of the running driver, itself included."""

    driver: subprocess.Popen[bytes]
    ours: list[psutil.Process]
    home: Path
    database: Path
    s3: Server
    tracking: Server | None
    random: Random


Strike = Callable[[Scene], AbstractContextManager[None]]


@dataclass(frozen=True)
class Kind:
    """lasts_s: least (and most likely) and most seconds of an outage, or None for a blow. must_end: the driver must end
    within 60 s. must_go_on: the driver must live on; without either, it may do both. codes: exit codes that say what
    happened. hits_worker: a process of a trial, of which there is none once the last trial has ended.
    """

    strike: Strike
    lasts_s: tuple[float, float] | None = None
    needs: Needs = "nothing"
    must_end: bool = False
    must_go_on: bool = False
    codes: tuple[int, ...] = (1, 2, 130)
    hits_worker: bool = False


def _killed(word: str, by: signal.Signals = signal.SIGKILL) -> Strike:
    """A process of Ray gets a signal."""

    @contextmanager
    def strike(scene: Scene) -> Iterator[None]:
        _one(scene, word).send_signal(by)
        yield

    return strike


def _signalled(number: signal.Signals) -> Strike:
    """The driver gets a signal."""

    @contextmanager
    def strike(scene: Scene) -> Iterator[None]:
        if scene.driver.poll() is not None:
            raise NothingToHit
        scene.driver.send_signal(number)
        yield

    return strike


@contextmanager
def _s3_down(scene: Scene) -> Iterator[None]:
    with scene.s3.down():
        yield


@contextmanager
def _mlflow_down(scene: Scene) -> Iterator[None]:
    assert scene.tracking is not None, "dealt to a sweep without a server"
    with scene.tracking.down():
        yield


@contextmanager
def _mlflow_hangs(scene: Scene) -> Iterator[None]:
    assert scene.tracking is not None, "dealt to a sweep without a server"
    with scene.tracking.frozen():
        yield


@contextmanager
def _mlflow_locked(scene: Scene) -> Iterator[None]:
    """Another process, we, holds the one write lock of MLflow's SQLite file."""
    if not scene.database.exists():
        raise NothingToHit
    with closing(sqlite3.connect(scene.database, timeout=10.0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            raise NothingToHit from error
        try:
            yield
        finally:
            connection.execute("ROLLBACK")


@contextmanager
def _disk_full(scene: Scene) -> Iterator[None]:
    """The small disk under the home folder filled to its last byte."""
    filler = scene.home / "filler"
    try:
        with filler.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                _fill(file.fileno(), b"\0" * size)
        yield
    finally:
        filler.unlink(missing_ok=True)


def _fill(descriptor: int, block: bytes) -> None:
    """Writes blocks until one does not fit whole; bounded by the size of the small disk."""
    try:
        while os.write(descriptor, block) == len(block):
            pass
    except OSError:
        return


def _one(scene: Scene, word: str) -> psutil.Process:
    found = named(scene.ours, word)
    if not found:
        raise NothingToHit
    return scene.random.choice(found) if word == "trial" else found[-1]


KINDS: dict[str, Kind] = {
    "driver_killed": Kind(_signalled(signal.SIGKILL), must_end=True, codes=(-9,)),
    "driver_sigterm": Kind(_signalled(signal.SIGTERM), must_end=True, codes=(130,)),
    "driver_sigint": Kind(_signalled(signal.SIGINT), must_end=True, codes=(130,)),
    "raylet_killed": Kind(_killed("raylet"), must_end=True, codes=(1, 130)),
    "gcs_killed": Kind(_killed("gcs_server"), must_end=True, codes=(1, 130)),
    "worker_killed": Kind(_killed("trial"), must_go_on=True, hits_worker=True),
    "worker_stopped": Kind(_killed("trial", signal.SIGSTOP), must_go_on=True, hits_worker=True),
    "s3_down": Kind(_s3_down, lasts_s=(10, 10)),
    "mlflow_down": Kind(_mlflow_down, lasts_s=(10, 20), needs="server", must_go_on=True),
    "mlflow_hangs": Kind(_mlflow_hangs, lasts_s=(10, 40), needs="server", must_go_on=True),
    "mlflow_locked": Kind(_mlflow_locked, lasts_s=(20, 60), needs="file", must_go_on=True),
    "disk_full": Kind(_disk_full, lasts_s=(10, 15), needs="small_disk"),
}
