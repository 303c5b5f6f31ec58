"""Why a trial's process is gone: what Ray knows of it, else what it may be."""

from __future__ import annotations

import pytest
from ray.exceptions import RayActorError

from vsetune.study.tune_adapter import DIED, reason_of

DEAD = "The actor died unexpectedly before finishing this task.\n\tclass_name: A\n\tpid: 7\n"
PROCESS = "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: "


@pytest.mark.parametrize(("error", "reason"), [
    (None, f"process: {DIED}"),
    (RayActorError(error_msg=DEAD), f"process: {DIED}"),
    (RayActorError(error_msg=f"{DEAD}{PROCESS}Worker unexpectedly exits with a connection error code 2. End of file."),
     f"process: {DIED}"),
    (RayActorError(error_msg=f"{DEAD}{PROCESS}Worker exits with an exit code 1. It raised at import."),
     "process: its process died (Worker exits with an exit code 1. It raised at import.)"),
    (RayActorError(error_msg=f"{DEAD}Task was killed due to the node running low on memory.\nMemory was 3 GB."),
     "process: its process died (Task was killed due to the node running low on memory. Memory was 3 GB.)"),
    (RayActorError(error_msg="An error in its creation task\n  File\nModuleNotFoundError: no statistics\n",
                   actor_init_failed=True), "process: it could not start (ModuleNotFoundError: no statistics)"),
    (OSError("no room"), "process: no room"),
])
def test_the_reason_is_rays_where_it_has_one(error: Exception | None, reason: str) -> None:
    assert reason_of(error) == reason
