"""A Ray that is started for one study on this machine consists of what runs trials, and waits for nothing else.

Left to itself `ray.init` starts two agents, an API server, an autoscaler and a reader of logs beside GCS and raylet,
each a Python process that imports Ray, and waits for three of them before a worker can begin. The API server has
nothing to serve without a dashboard, the autoscaler nothing to add, and nobody reads the logs. The agents stay, since
the raylet insists on them and one serves the metrics, but with ports that were chosen before nobody waits for them.
`ray.init` has no settings for this, its class of a node has.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ray import _raylet
from ray._private import node as ray_node

_AGENT_PORTS = (
    "metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port",
)
_LOOPBACK = "127.0.0.1"
_KEPT_MS = 60_000
"""Left to itself Ray ends a worker that waits for 1 s while its CPU is promised, which comes before its trial."""


class _BareNode(ray_node.Node):
    def __init__(self, ray_params: Any, **settings: Any) -> None:
        ray_params.no_monitor, ray_params.include_log_monitor = True, False
        self._kept_ports = {name: kept_port() for name in _AGENT_PORTS}
        for name, port in self._kept_ports.items():
            setattr(ray_params, name, port)
        super().__init__(ray_params, **settings)

    def start_api_server(self, **settings: Any) -> None:
        """None: there is no dashboard."""

    def start_raylet(self, *settings: Any, **more: Any) -> None:
        """Tells it beforehand what it would wait for: the files in which agents write on which ports they listen."""
        tell = getattr(_raylet, "persist_port", None)  # Ray before 2.53 chooses ports beforehand itself
        for name, port in self._kept_ports.items():
            if tell is not None:
                tell(self.get_session_dir_path(), self._node_id, name, port)
        super().start_raylet(*settings, **more)


@contextmanager
def bare_ray() -> Iterator[None]:
    """A Ray that is started inside is a bare one; one that is connected to is what it is."""
    whole = ray_node.Node
    ray_node.Node = _BareNode
    try:
        yield
    finally:
        ray_node.Node = whole


def workers_ahead(preloaded: Sequence[str]) -> dict[str, Any]:
    """Ray's system settings for workers that begin before they have work, and stay until they get it. preloaded: the
    modules that they import meanwhile."""
    return {"idle_worker_killing_time_threshold_ms": _KEPT_MS, "preload_python_modules": [*preloaded]}


def kept_port() -> int:
    """A port of this machine that the system gives to nobody else for a minute: a server that asks for it gets it.

    It is where a connection was closed, which servers may take (SO_REUSEADDR) and what asks for any port is not given.
    """
    with socket.create_server((_LOOPBACK, 0)) as server:
        port: int = server.getsockname()[1]
        with socket.create_connection((_LOOPBACK, port)):
            server.accept()[0].close()  # the side that closes first keeps the port
    return port
