"""Keeps Ray Tune from writing credentials into Ray's logs.

Tune copies AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the session tokens from the driver into the runtime environment
of every trial. Ray writes runtime environments to its logs and shows them on its dashboard. No setting prevents it, so
this replaces Tune's list of variables. Workers do not need the copy: those of a Ray on this machine inherit the
environment, and on a cluster a node has its own credentials (a role, ~/.aws, or variables set where `ray start` ran).
See docs/decisions/0031.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ray.tune.execution import class_cache

from vsetune.config.spec.secrets import is_secret_variable


@contextmanager
def credentials_not_forwarded() -> Iterator[None]:
    """Inside the context, Tune forwards only those variables of the driver that contain no secret."""
    before = class_cache.ENV_VARS_TO_PROPAGATE
    class_cache.ENV_VARS_TO_PROPAGATE = {name for name in before if not is_secret_variable(name)}
    try:
        yield
    finally:
        class_cache.ENV_VARS_TO_PROPAGATE = before
