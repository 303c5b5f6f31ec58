"""Connection to a running Ray cluster, or to one that is started on this machine. Its processes are watched from before
the start, because Ray blocks for a minute or more when one of them dies meanwhile."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self
from urllib.parse import urlsplit

import psutil
import ray
from ray._private import ray_constants

from vsetune.config.study.resources import Needs, ResourceSpec
from vsetune.errors import Message, UsageError, one_line
from vsetune.home.paths import make_folders_absolute
from vsetune.study.capacity import Capacity, connected_nodes
from vsetune.study.node_types import known_node_types, own_cpus, require_places
from vsetune.study.stopping import StopRequest
from vsetune.version import PACKAGE_FOLDER, REVISION_VARIABLE, git_revision

# Readers fill shuffle buffers in threads. By default, glibc gives threads up to 8 heaps per core, and each heap keeps
# the memory that a reader once needed: a worker after six trials on Flickr8k used 5 GB, with two heaps it uses 1 GB.
_WORKER_ENVIRONMENT = {"MALLOC_ARENA_MAX": "2"}
_ANSWERS_WITHIN_S = 5.0
_RAYS_FILES = ("RAY_AUTH_TOKEN_PATH", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
_LONG_FOLDER = Message(
    "VSE-S520", "{variable}: {folder} is too long for the sockets that Ray makes below it; set RAY_TMPDIR to a short "
    "folder, such as /tmp"
)
_JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Environment variable that Ray sets for the process of a job."""


@contextmanager
def ray_cluster(
    address: str | None, stop: StopRequest, *, farewell: str, modules: Sequence[Path] = (),
) -> Iterator[None]:
    """A connection to Ray.

    address: of a running cluster, `auto`, or None to start Ray here unless RAY_ADDRESS is set.

    A connection that this process already has is used and left open. Ray's processes are watched for any other
    connection, also while it is made: `stop` is requested when Ray dies, and the process exits with the message
    `farewell` if Ray blocks its exit. `stop` listens inside the context.

    Token authentication is on unless RAY_AUTH_MODE sets another mode (see `vsetune.study`).
    A cluster that runs elsewhere receives this package with the job, so that its workers run the driver's code, and
    also the folders in `modules`.
    """
    if ray.is_initialized():  # the caller that connected this process to Ray also ends the connection
        with stop.listening():
            yield
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    target = cluster_address(address)
    with stop.listening(), RayWatch(RemoteRay(target) if target else LocalRay(), stop, farewell=farewell) as watch:
        try:
            _connect(target, modules)
            stop.listen_again()
        except SystemExit:  # of Ray's own handler of SIGTERM, which stands until `listen_again`
            raise KeyboardInterrupt from None
        try:
            watch.connected()
            if stop.is_requested:  # while Ray started
                raise KeyboardInterrupt
            yield
        finally:
            ray.shutdown()


def cluster_address(given: str | None) -> str | None:
    """The address of the cluster to connect to: the given one, else RAY_ADDRESS; None without either, and for `local`,
    which starts Ray here too. UsageError for the address of a dashboard, which only `vsetune job` accepts."""
    target = given or os.environ.get("RAY_ADDRESS")
    if target and target.startswith(("http://", "https://")):
        where = "--address" if given else "RAY_ADDRESS"
        raise UsageError(
            "VSE-S035", "{where}: got {got}, the address of a dashboard; need that of the cluster, HOST:6379 or auto, "
            "on one of its nodes; from elsewhere send it with `vsetune job submit`", where=where, got=one_line(target),
        )
    return None if target == "local" else target or None


def _connect(target: str | None, modules: Sequence[Path]) -> None:
    """Connects to Ray. target: None starts one on this machine. UsageError of one line if that fails.

    Ray puts the working directory in front of the search path of workers, where a module `statistics` of the user would
    replace Python's own. It is therefore another one meanwhile; workers change theirs anyway.
    """
    for name in _RAYS_FILES:
        if os.environ.get(name):
            os.environ[name] = str(Path(os.environ[name]).expanduser().absolute())
    try:
        if target:
            _require_listener(target)
            sent = [str(folder.absolute()) for folder in (PACKAGE_FOLDER, *modules)]
            with contextlib.chdir(os.sep):
                ray.init(
                    address=target, log_to_driver=False, logging_level=logging.WARNING,
                    runtime_env={"py_modules": sent, "env_vars": {**_WORKER_ENVIRONMENT, **_revision()}},
                )
        else:
            for name, value in _WORKER_ENVIRONMENT.items():
                os.environ.setdefault(name, value)  # workers inherit it
            make_folders_absolute()
            _token_where_home_holds_none()
            # `local`, or Ray would join the cluster that was last started on this machine
            with loopback_only(), contextlib.chdir(os.sep):
                ray.init(
                    address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
                    num_cpus=own_cpus(),
                )
    except Exception as error:  # Ray raises Exception itself if the GCS or the raylet does not start
        if target is None and "AF_UNIX path" in str(error):
            variable = "RAY_TMPDIR" if os.environ.get("RAY_TMPDIR") else "TMPDIR"
            folder = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
            raise UsageError(_LONG_FOLDER(variable=variable, folder=folder)) from error
        if target is None:
            raise UsageError(
                "VSE-S036", "ray: did not start here ({reason}); repeat with --resume", reason=_first_line(error)
            ) from error
        raise UsageError(
            "VSE-S037", "ray: cannot reach {address} ({reason}); start it with `ray start --head`, and set "
            "RAY_AUTH_MODE=token in both shells", address=target, reason=_first_line(error),
        ) from error


def _token_where_home_holds_none() -> None:
    """Sets a token in the environment if ~/.ray, where Ray writes the token of a cluster, is not writable."""
    if os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH"):
        return
    try:
        folder = Path.home() / ".ray"
        folder.mkdir(parents=True, exist_ok=True)
        is_writable = (folder / "auth_token").is_file() or os.access(folder, os.W_OK)
    except (OSError, RuntimeError):  # RuntimeError: the home folder is unknown
        is_writable = False
    if not is_writable:
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _require_listener(target: str) -> None:
    """OSError if nothing listens at HOST:PORT or ray://HOST:PORT. Ray would try for a quarter of an hour and ignore
    signals."""
    listener_address = _listener_of(target)
    if listener_address is not None:
        socket.create_connection(listener_address, timeout=_ANSWERS_WITHIN_S).close()


def _listener_of(target: str) -> tuple[str, int] | None:
    """Host and port of HOST:PORT or ray://HOST:PORT; None for `auto`. ValueError for a port that is no number."""
    parts = urlsplit(target if "://" in target else f"//{target}")
    return (parts.hostname, parts.port) if parts.hostname and parts.port else None


def _revision() -> dict[str, str]:
    """The variable that gives workers the revision of the driver's code; none if the job sets it. The variables of a
    job reach workers anyway, and Ray refuses a variable that is set twice."""
    if os.environ.get(_JOB_VARIABLE) and os.environ.get(REVISION_VARIABLE):
        return {}
    return {REVISION_VARIABLE: git_revision()}


def capacity_of(resources: ResourceSpec, needs: Iterable[Needs]) -> Capacity:
    """The capacity of the connected cluster, which limits how many trials run at once. needs: of every cell.

    ConfigError if some trial fits neither an existing node nor one that may be added.
    """
    types = known_node_types()
    nodes = [node for _, node in connected_nodes()]
    advice = "lower `resources`, or add a node that has room for it"
    require_places(needs, types, nodes, where="resources", advice=advice)
    return Capacity(connected_nodes, types, limit=resources.concurrent_trials)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


LOOK_EVERY_S = 1.0
_LOOK_WHILE_STARTING_S = 0.5
SILENT_FOR_S = 10.0
"""How long the head of a cluster may be unreachable before it counts as gone."""
LEAVE_WITHIN_S = 30.0
"""Time after a request to stop before the process exits without waiting for Ray any longer."""
_LEAVE_START_WITHIN_S = 3.0
"""The same for a Ray that died while it started: there are no results to write, and Ray itself would wait a minute."""
INTERRUPTED = 130
_log = logging.getLogger(__name__)
_PARTS = {"raylet": "the raylet", "gcs_server": "the GCS"}


class RayParts(Protocol):
    """The processes that a study's Ray depends on."""

    def connected(self) -> None:
        """To be called once this process is connected to Ray."""

    def lost(self) -> str | None:
        """The part that has died, as one phrase; None while all parts are alive."""

    def clean_up(self) -> None:
        """Ends the remaining processes if this process started them."""


class LocalRay:
    """A Ray that this process starts. below: all processes of it, with agents that outlive the raylet that started
    them."""

    def __init__(self) -> None:
        """Before Ray starts: a process that this one has by now does not belong to it."""
        self._before = children()
        self._parts: dict[psutil.Process, str] = {}
        self.below: set[psutil.Process] = set()
        self._is_starting, self._collecting = True, threading.Lock()

    def connected(self) -> None:
        self._collect()
        with self._collecting:
            self._is_starting = False

    def lost(self) -> str | None:
        self._collect()
        return next((f"{name} died" for part, name in self._parts.items() if not _is_alive(part)), None)

    def clean_up(self) -> None:
        self._collect()
        for process in self.below:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def _collect(self) -> None:
        """Adds the processes that Ray has started since. Once it runs, they are children of its parts."""
        with self._collecting:
            if self._is_starting:
                self.below.update(children() - self._before)
                self._parts.update({process: name for process in self.below if (name := _part_of(process))})
            for part in self._parts:
                with contextlib.suppress(psutil.Error):
                    self.below.update(part.children(recursive=True))


def _part_of(process: psutil.Process) -> str | None:
    try:
        return _PARTS.get(process.name())
    except psutil.Error:
        return None


@dataclass
class RemoteRay:
    """A cluster that this process does not start. address: as given; once connected, that of its GCS. node: id of the
    node of this driver; None until it is connected."""

    address: str
    node: str | None = None
    last_seen: float = field(default_factory=time.monotonic)
    next_look: float = 0.0

    def connected(self) -> None:
        context = ray.get_runtime_context()
        self.address, self.node, self.last_seen = context.gcs_address, context.get_node_id(), time.monotonic()

    def lost(self) -> str | None:
        now, listener = time.monotonic(), _listener_of(self.address)
        if listener is None or now < self.next_look:
            return None
        self.next_look = now + 3.0
        try:
            socket.create_connection(listener, timeout=3.0).close()
        except OSError:
            return f"the GCS at {self.address} is gone" if now - self.last_seen > SILENT_FOR_S else None
        self.last_seen = time.monotonic()
        if self.node and any(node["NodeID"] == self.node and not node["Alive"] for node in ray.nodes()):
            return "the raylet of this node died"
        return None

    def clean_up(self) -> None:
        """Does nothing: other people's jobs run there."""


class RayWatch:
    """A thread that checks the parts of Ray, and the time since a request to stop, inside the context. Ends the parts
    of this process afterwards."""

    def __init__(self, parts: RayParts, stop: StopRequest, *, farewell: str) -> None:
        """farewell: the line to print when the process cannot end normally."""
        self._parts, self._stop, self._farewell = parts, stop, farewell
        self._over = threading.Event()
        self._is_starting, self._has_failed = True, False
        self._thread = threading.Thread(target=self._look, name="vsetune-ray-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._parts.clean_up()

    def connected(self) -> None:
        """To be called once this process is connected to Ray."""
        self._parts.connected()
        self._is_starting = False

    def _look(self) -> None:
        while not self._over.wait(_LOOK_WHILE_STARTING_S if self._is_starting else LOOK_EVERY_S):
            if not self._stop.is_requested:
                lost = self._lost()
                if lost is not None:
                    self._stop.request(f"the death of Ray ({lost})", leaves_time=False)
            elif time.monotonic() - self._stop.since > self._patience_s():
                self._leave()

    def _patience_s(self) -> float:
        is_dead_start = self._is_starting and not self._stop.leaves_time
        return _LEAVE_START_WITHIN_S if is_dead_start else LEAVE_WITHIN_S

    def _lost(self) -> str | None:
        """The part that has died, or None. A check that fails is logged once and repeated at the next look."""
        try:
            return self._parts.lost()
        except Exception as error:
            if not self._has_failed:
                _log.warning("cannot find out whether Ray lives (%s: %s)", type(error).__name__, one_line(error))
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


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


_SWITCH = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


@contextmanager
def loopback_only() -> Iterator[None]:
    """A Ray that is started inside the context has only the address 127.0.0.1; a Ray that runs already is unchanged."""
    before, enabled = os.environ.get(_SWITCH), ray_constants.ENABLE_RAY_CLUSTER
    os.environ[_SWITCH] = "0"  # the processes that Ray starts read it again
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = enabled
        if before is None:
            del os.environ[_SWITCH]
        else:
            os.environ[_SWITCH] = before
