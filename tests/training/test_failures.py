"""Final is only what would fail again; everything that merely happened to a trial is an interruption."""

from __future__ import annotations

import errno

import pytest
import torch
from botocore.exceptions import ClientError, EndpointConnectionError

from vsetune.errors import (
    AttemptError,
    ConfigError,
    DamagedCheckpoint,
    DataError,
    NumericError,
    Preempted,
    StaleCheckpoint,
    StorageError,
)
from vsetune.training.failures import failure_of, out_of_memory

FINAL = [
    (ConfigError("network: too wide"), "configuration"),
    (DataError("shard 3: damaged"), "data"),
    (NumericError("loss is nan"), "numeric"),
    (StaleCheckpoint("of another trial"), "checkpoint"),
    (AttemptError("already trained"), "bug"),
    (KeyError("words"), "bug"),
    (RuntimeError("shape '[2, 3]' is invalid for input of size 5"), "bug"),
]
INTERRUPTIONS = [
    (StorageError("disk full"), "storage"),
    (DamagedCheckpoint("a byte differs"), "storage"),
    (OSError(errno.ENOSPC, "No space left on device"), "storage"),
    (OSError(errno.EIO, "Input/output error"), "storage"),
    (OSError(errno.ESTALE, "Stale file handle"), "storage"),
    (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "network"),
    (TimeoutError("timed out"), "network"),
    (OSError(errno.EHOSTUNREACH, "No route to host"), "network"),
    (EndpointConnectionError(endpoint_url="http://127.0.0.1:1"), "network"),
    (ClientError({"Error": {"Code": "503"}}, "GetObject"), "network"),
    (MemoryError(), "memory"),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory"),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "memory"),
    (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"), "memory"),
    (out_of_memory(RuntimeError("CUDA out of memory"), where="trial", step=3), "memory"),
    (RuntimeError("CUDA error: an illegal memory access was encountered"), "device"),
    (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), "device"),
    (RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed."), "process"),
]


@pytest.mark.parametrize(("error", "kind"), FINAL)
def test_what_would_fail_again_is_final(error: Exception, kind: str) -> None:
    failure = failure_of(error)
    assert (failure.kind, failure.is_final, failure.spoils_the_process) == (kind, True, False)
    assert failure.text.startswith(f"{kind}: ")


@pytest.mark.parametrize(("error", "kind"), INTERRUPTIONS)
def test_what_happened_to_a_trial_is_an_interruption(error: Exception, kind: str) -> None:
    failure = failure_of(error)
    assert (failure.kind, failure.is_final) == (kind, False)
    assert "\n" not in failure.text


def test_a_failed_device_and_a_machine_that_goes_spoil_the_process() -> None:
    told = [*INTERRUPTIONS, (Preempted("trial: its machine will go, continued elsewhere."), "preempted")]
    spoilt = {kind for error, kind in told if failure_of(error).spoils_the_process}
    assert spoilt == {"device", "preempted"}


def test_an_exception_without_words_is_named() -> None:
    assert failure_of(MemoryError()).text == "memory: MemoryError: "
    assert failure_of(KeyError("words")).text == "bug: KeyError: 'words'"
