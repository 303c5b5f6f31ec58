"""Connects to the Ray cluster there is, or starts one on this machine for as long as the study runs."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import ray

from vsetune.config.spec.foreign_text import one_line
from vsetune.config.spec.paths import make_folders_absolute
from vsetune.config.study.resources import Needs, ResourceSpec
from vsetune.errors import ConfigError, UsageError
from vsetune.jobs.capacity import Capacity, RayCluster
from vsetune.jobs.loopback import loopback_only
from vsetune.jobs.node_types import known_node_types, refused
from vsetune.jobs.ray_watch import LocalRay, RayParts, RayWatch, RemoteRay, children, ended_unless_started
from vsetune.jobs.stopping import StopRequest
from vsetune.training.code_revision import REVISION_VARIABLE, git_revision

PACKAGE_FOLDER = Path(__file__).parents[1]

# Readers fill shuffle buffers in threads. Left alone, glibc gives threads up to 8 heaps per core, each of which keeps
# what one reader once needed: a worker that had trained six trials on Flickr8k held 5 GB, with two heaps it holds 1 GB.
_WORKER_ENVIRONMENT = {"MALLOC_ARENA_MAX": "2"}
_ANSWERS_WITHIN_S = 5.0
_GREETS_WITHIN_S = 30.0
"""The system takes a connection at once; a GCS on a machine with too much to do needs longer to say its first word."""
_FRAME_BYTES, _SETTINGS = 9, b"\x04"
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00" + _SETTINGS + b"\x00" * 5
"""How HTTP/2 begins, on which gRPC stands; a server answers with a frame of settings."""
_JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray sets it for the process of a job."""


@contextmanager
def ray_cluster(
    address: str | None, stop: StopRequest, *, farewell: str, modules: Sequence[Path] = (),
) -> Iterator[None]:
    """A connection to Ray.

    address: of a running cluster, `auto`, or None to start Ray here unless RAY_ADDRESS is set.

    A connection that this process has already is used and left open. Of any other the parts are watched: `stop` is
    requested when Ray dies, and the process leaves with `farewell` when Ray does not let it go. Inside, `stop` listens.

    Token authentication is on unless RAY_AUTH_MODE says otherwise (see `vsetune.jobs`).
    A cluster that runs elsewhere gets this very package with the job, so its workers run the code of the driver, and
    beside it the folders in `modules`.
    """
    if ray.is_initialized():  # whoever connected this process to Ray decides when it ends
        with stop.listening():
            yield
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    target = cluster_address(address)
    with stop.listening():
        before = children()
        _connect(target, modules)
        stop.listen_again()
        parts: RayParts = RemoteRay.of_this_driver() if target else LocalRay.started_since(before)
        with RayWatch(parts, stop, farewell=farewell).watching():
            try:
                if stop.is_requested:  # while Ray started
                    raise KeyboardInterrupt
                yield
            finally:
                ray.shutdown()


def cluster_address(given: str | None) -> str | None:
    """What names the cluster to connect to: as given, else RAY_ADDRESS; None where neither is. UsageError for the
    address of a dashboard, which `vsetune job` takes."""
    target = given or os.environ.get("RAY_ADDRESS")
    if target and target.startswith(("http://", "https://")):
        raise UsageError(
            f"{'--address' if given else 'RAY_ADDRESS'}: got {one_line(target)}, the address of a dashboard; need that "
            "of the cluster, HOST:6379 or auto, on one of its nodes; from elsewhere send it with `vsetune job submit`"
        )
    return target or None


def _connect(target: str | None, modules: Sequence[Path]) -> None:
    """UsageError in one line when there is no Ray to be had. target: None starts one on this machine."""
    try:
        if target:
            _require_listener(target)
            ray.init(
                address=target, log_to_driver=False, logging_level=logging.WARNING,
                runtime_env={
                    "py_modules": [*map(str, (PACKAGE_FOLDER, *modules))],
                    "env_vars": {**_WORKER_ENVIRONMENT, **_revision()},
                },
            )
        else:
            for name, value in _WORKER_ENVIRONMENT.items():
                os.environ.setdefault(name, value)  # workers inherit it
            make_folders_absolute()
            _token_where_home_holds_none()
            # `local`, or Ray would join whatever cluster was last started on this machine
            with loopback_only(), ended_unless_started():
                ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises this very class when the GCS or the raylet that it starts does not come up
        if target is None:
            raise UsageError(f"ray: did not start here ({_first_line(error)}); repeat with --resume") from error
        raise UsageError(
            f"ray: cannot reach {target} ({_first_line(error)}); start it with `ray start --head`, and set "
            "RAY_AUTH_MODE=token in both shells"
        ) from error


def _token_where_home_holds_none() -> None:
    """Ray writes the token of a cluster to ~/.ray. Where it cannot, the cluster has one in the environment alone."""
    if os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH"):
        return
    try:
        folder = Path.home() / ".ray"
        folder.mkdir(parents=True, exist_ok=True)
        is_writable = (folder / "auth_token").is_file() or os.access(folder, os.W_OK)
    except (OSError, RuntimeError):  # RuntimeError: nobody knows the home folder
        is_writable = False
    if not is_writable:
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _require_listener(target: str) -> None:
    """OSError if nothing listens at HOST:PORT or ray://HOST:PORT, or something that does not speak HTTP/2 as Ray does,
    such as a web server. Ray would try for a quarter of an hour, deaf to signals."""
    parts = urlsplit(target if "://" in target else f"//{target}")
    if not parts.hostname or not parts.port:
        return
    with socket.create_connection((parts.hostname, parts.port), timeout=_ANSWERS_WITHIN_S) as listener:
        if os.environ.get("RAY_USE_TLS", "0") != "0":
            return
        listener.settimeout(_GREETS_WITHIN_S)
        listener.sendall(_GREETING)
        with listener.makefile("rb") as answer:
            if answer.read(_FRAME_BYTES)[3:4] != _SETTINGS:
                raise ConnectionError("what answers there is no Ray")


def _revision() -> dict[str, str]:
    """What tells workers the revision of the code that they are sent. A job's own variables reach them anyhow, and Ray
    refuses to be given one a second time."""
    if os.environ.get(_JOB_VARIABLE) and os.environ.get(REVISION_VARIABLE):
        return {}
    return {REVISION_VARIABLE: git_revision(PACKAGE_FOLDER)}


def capacity_of(resources: ResourceSpec, needs: Iterable[Needs]) -> Capacity:
    """What decides how many trials run at once. needs: of every cell.

    ConfigError if some trial fits no node there is and none that may come.
    """
    cluster, types = RayCluster(), known_node_types()
    nodes = [node for _, node in cluster.nodes()]
    for each in sorted(set(needs)):
        reason = refused(each, types, nodes)
        if reason is not None:
            raise ConfigError(
                f"resources: one trial asks for {reason}; lower `resources`, or add a node that has room for it"
            )
    return Capacity(cluster, types, limit=resources.concurrent_trials)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
