"""What Ray Tune would copy from the driver into Ray's logs."""

from __future__ import annotations

import pytest
from ray.tune.execution import class_cache

from vsetune.study.placement import credentials_not_forwarded

pytestmark = pytest.mark.filterwarnings("default")  # Ray and its dependencies warn about themselves
KEYS = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SECURITY_TOKEN", "AWS_SESSION_TOKEN"}


class Trainable:
    """A class of ours that Tune would place."""


def variables_of_a_trial() -> dict[str, str]:
    """What stands in the runtime environment of the actor that Tune makes."""
    made = class_cache._ActorClassCache().get(type("Trainable", (Trainable,), {}))
    return dict(made._default_options["runtime_env"].get("env_vars", {}))


def test_tune_forwards_no_credentials_and_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*KEYS, "RAY_CHDIR_TO_TRIAL_DIR"):
        monkeypatch.setenv(name, "0")
    assert set(variables_of_a_trial()) >= KEYS, "Tune has stopped forwarding them: study/placement.py can go"
    with credentials_not_forwarded():
        forwarded = set(variables_of_a_trial())
    assert not forwarded & KEYS
    assert "RAY_CHDIR_TO_TRIAL_DIR" in forwarded
    assert set(variables_of_a_trial()) >= KEYS
