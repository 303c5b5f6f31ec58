"""Restricts a Ray that is started for this machine to the loopback address.

By default, the Ray that `ray.init` starts listens on every network of the machine, and anyone with the token can run
code through it. Ray has a switch that gives a node the loopback address. It is made for Windows and macOS, where Ray
starts no clusters. Ray reads the switch when it is imported, so this module sets Ray's private constant.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ray._private import ray_constants

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
