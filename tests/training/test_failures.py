"""Final is only what would fail again; everything that merely happened to a trial is an interruption."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

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
from vsetune.quality.checks import first_problem
from vsetune.records.events import has_diverged
from vsetune.training.failures import failure_of, out_of_memory, raised_by_code

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
    assert has_diverged("failed", failure.text) == (kind == "numeric")
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


def raised(error: Exception) -> Exception:
    """Through a line of our code, `quality/checks.py`."""

    def problems() -> Iterator[None]:
        yield None
        raise error

    with pytest.raises(type(error)) as caught:
        first_problem(problems())
    return caught.value


@pytest.mark.parametrize(("error", "kind"), INTERRUPTIONS)
def test_an_outage_is_never_laid_to_the_code(error: Exception, kind: str) -> None:
    assert raised_by_code(failure_of(raised(error), step=4).text) is None


@pytest.mark.parametrize("error", [
    FileNotFoundError(errno.ENOENT, "No such file or directory", "words.txt"), PermissionError(errno.EACCES, "denied"),
    OSError("cannot identify image file"),
])
def test_what_the_operating_system_says_of_a_path_is_laid_to_the_code(error: Exception) -> None:
    failure = failure_of(raised(error), step=4)
    name, found = type(error).__name__, raised_by_code(failure.text)
    assert not failure.is_final
    assert re.fullmatch(rf"{name} at quality/checks.py:\d+ in step 4", found or "")


def test_a_server_that_is_behind_an_error_without_a_number_is_an_outage() -> None:
    error = OSError("cannot load the tokenizer from the hub")
    error.__cause__ = ConnectionError("Max retries exceeded")
    failure = failure_of(raised(error))
    assert (failure.kind, raised_by_code(failure.text)) == ("network", None)


def test_an_assertion_on_the_device_is_laid_to_the_code_wherever_it_surfaces() -> None:
    error = RuntimeError("CUDA error: device-side assert triggered\nCUDA kernel errors might be reported later")
    failures = [failure_of(error, step=3), failure_of(raised(error), step=7)]
    assert [failure.kind for failure in failures] == ["device", "device"]
    assert [raised_by_code(failure.text) for failure in failures] == ["RuntimeError of an assertion on the device"] * 2
