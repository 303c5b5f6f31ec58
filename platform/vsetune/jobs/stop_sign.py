"""A driver that is asked to stop tells its workers, in Ray's own store, so that each leaves after the step at hand.

What Tune tells a worker at the end waits until the validation it is on the way to is done, and not for longer than
`ENDED_WITHIN_S`: then the process is killed, and with it what it has trained since its last checkpoint.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import ray
from ray.experimental import internal_kv

from vsetune.jobs.stopping import StopRequest

ENDED_WITHIN_S = 20
"""How long workers have, from the end of Tune's loop on, for the step at hand and a checkpoint."""
_LOOK_EVERY_S = 0.5
_NAMESPACE = b"vsetune-stop"

_log = logging.getLogger(__name__)


@contextmanager
def told_to_workers(stop: StopRequest) -> Iterator[None]:
    """Inside, the workers of this job hear of a request to stop. Ray is connected."""
    over = threading.Event()

    def tell() -> None:
        while not over.wait(_LOOK_EVERY_S):
            if stop.is_requested:
                try:
                    internal_kv._internal_kv_put(_key(), b"asked", namespace=_NAMESPACE)
                except Exception as error:  # Ray has died: so have they
                    _log.info("workers are not told of the stop (%s)", error)
                return

    thread = threading.Thread(target=tell, name="vsetune-stop-sign", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=1.0)
        if stop.is_requested and ray.is_initialized():
            try:  # the next study of this process begins as any other
                internal_kv._internal_kv_del(_key(), namespace=_NAMESPACE)
            except Exception as error:
                _log.info("the sign of the stop stands in Ray's store (%s)", error)


def is_told() -> bool:
    """In a worker: whether its driver has been asked to stop."""
    return ray.is_initialized() and internal_kv._internal_kv_get(_key(), namespace=_NAMESPACE) is not None


def _key() -> bytes:
    return str(ray.get_runtime_context().get_job_id()).encode()
