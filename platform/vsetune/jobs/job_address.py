"""Where the Jobs API of a cluster answers: the dashboard of its head node, http://HOST:8265 unless it was moved."""

from __future__ import annotations

import os
import socket
from urllib.parse import urlsplit

from vsetune.errors import UsageError

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
_PORT = 8265
_ANSWERS_WITHIN_S = 5.0


def job_address(given: str | None) -> str:
    """The address without a slash at its end: as given, else of the environment, else this machine.

    `HOST` and `HOST:PORT` are taken as http. RAY_ADDRESS may name the port of the cluster itself (`HOST:6379`, `auto`,
    `ray://HOST:10001`), as it does in shells on a node; the dashboard is then looked for at its own port there.
    UsageError for what can be no address.
    """
    if given is not None:
        return _as_http(given, where="--address")
    for name in _VARIABLES:
        value = os.environ.get(name)
        if value:
            return _as_http(value if "://" in value or name == _VARIABLES[0] else _dashboard_of(value), where=name)
    return DEFAULT_ADDRESS


def require_listener(address: str) -> None:
    """UsageError if nothing listens there; Ray's client would wait without end for a host that drops packets."""
    parts = urlsplit(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((str(parts.hostname), port), timeout=_ANSWERS_WITHIN_S).close()
    except OSError as error:
        raise UsageError(
            f"cluster {address}: nothing answers there ({error.strerror or error}); start it (`ray up cluster.yaml`, "
            "`ray start --head`), open a tunnel to it (`ray dashboard cluster.yaml`), or name it with --address"
        ) from error


def _as_http(text: str, *, where: str) -> str:
    if text.startswith("ray://"):
        text = _dashboard_of(text.removeprefix("ray://"))
    address = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(address)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or any(sign.isspace() for sign in text):
        raise UsageError(f"{where}: got {text[:80]!r}, need the address of the dashboard, as in {DEFAULT_ADDRESS}")
    if parts.username or parts.password:
        raise UsageError(f"{where}: holds a user or password; Ray takes a token instead, see ~/.ray/auth_token")
    return address.rstrip("/") if parts.port or parts.scheme == "https" else f"http://{parts.hostname}:{_PORT}"


def _dashboard_of(cluster: str) -> str:
    """`auto` and `local` are this machine; of HOST:PORT the host counts."""
    if cluster in ("auto", "local"):
        return DEFAULT_ADDRESS
    return f"http://{cluster.rpartition(':')[0] or cluster}:{_PORT}"
