"""Keeps Ray Tune from writing credentials into Ray's logs, and from giving workers an environment that they have.
The one place that reaches into Tune for it.

Tune copies AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the session tokens from the driver into the runtime environment
of every trial. Ray writes runtime environments to its logs and shows them on its dashboard. No setting prevents it.
Workers do not need the copy: those of a Ray on this machine inherit the environment, and on a cluster a node has
credentials of its own (a role, ~/.aws, or variables set where `ray start` ran). See docs/decisions/0031.

Ray keeps workers ready for those without an environment of their own: whoever names even one variable waits for an
agent to make it and for a new process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ray.tune.execution import class_cache

from vsetune.config.spec.secrets import is_secret_variable


@contextmanager
def credentials_not_forwarded(*, inherited: bool = False) -> Iterator[None]:
    """While it lasts, Tune forwards only those variables of the driver that hold no secret. inherited: none at all,
    since workers have the environment of the driver."""
    before = class_cache.DEFAULT_ENV_VARS, class_cache.ENV_VARS_TO_PROPAGATE
    if inherited:
        class_cache.DEFAULT_ENV_VARS, class_cache.ENV_VARS_TO_PROPAGATE = {}, set()
    else:
        class_cache.ENV_VARS_TO_PROPAGATE = {name for name in before[1] if not is_secret_variable(name)}
    try:
        yield
    finally:
        class_cache.DEFAULT_ENV_VARS, class_cache.ENV_VARS_TO_PROPAGATE = before
