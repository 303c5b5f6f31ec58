"""A Ray that is started for this machine alone listens on this machine alone.

The Ray that `ray.init` starts listens on every network of the machine, and anybody with the token runs code through it.
Ray has a switch that gives a node the loopback address, made for Windows and macOS, where it starts no clusters. Ray
reads the switch when it is imported, so this sets Ray's private constant: the only private name of Ray that we use.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ray._private import ray_constants

_SWITCH = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


@contextmanager
def loopback_only() -> Iterator[None]:
    """A Ray that is started inside has the address 127.0.0.1 and no other; one that is connected to is not changed."""
    before, enabled = os.environ.get(_SWITCH), ray_constants.ENABLE_RAY_CLUSTER
    os.environ[_SWITCH] = "0"  # what Ray starts reads it anew
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = enabled
        if before is None:
            del os.environ[_SWITCH]
        else:
            os.environ[_SWITCH] = before
