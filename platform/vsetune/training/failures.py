"""Failures of an attempt: whether a retry would fail again, and where the error happened.

Failures of configuration, data and numbers are final: the same trial would fail the same way. Everything else (storage,
network, device, memory, the death of a process) happened *to* the trial: it is an interruption, and the trial is
retried.

Some errors look like an outage but may come from the code: a missing file, an assertion on the device. Their text names
the place, so that the ledger recognises the same error when it occurs a second time, which is final.
"""

from __future__ import annotations

import errno
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from pydantic import ValidationError

from vsetune.config.plugins import place_in_plugin
from vsetune.errors import (
    AttemptError,
    ConfigError,
    DamagedCheckpoint,
    DataError,
    NumericError,
    Preempted,
    StaleCheckpoint,
    StorageError,
    VsetuneError,
)
from vsetune.home.addresses import masked
from vsetune.training.validation import LoggedProgress
from vsetune.version import PACKAGE_FOLDER

Kind = Literal[
    "configuration", "data", "numeric", "checkpoint", "bug", "storage", "network", "device", "memory", "process",
    "preempted",
]
FINAL: frozenset[Kind] = frozenset({"configuration", "data", "numeric", "checkpoint", "bug"})
"""Kinds that fail a trial for good; `bug` is an unexpected exception."""
_OF_ATTEMPTS: dict[str, Kind] = {"memory": "memory", "device": "device", "process": "process"}
_OWN: list[tuple[type[VsetuneError], Kind]] = [  # subclasses before their parents
    (DamagedCheckpoint, "storage"),  # of bits, not of the trial, which can start again without it
    (StaleCheckpoint, "checkpoint"), (StorageError, "storage"), (DataError, "data"), (NumericError, "numeric"),
    (Preempted, "preempted"), (ConfigError, "configuration"),
]

_NETWORK_ERRNOS = frozenset({
    errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT, errno.EHOSTUNREACH,
    errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN,
})
_NETWORK_PACKAGES = frozenset({
    "botocore", "urllib3", "requests", "httpx", "aiohttp", "huggingface_hub", "socket", "ssl", "urllib", "http",
})
_DEVICE_WORDS = ("CUDA error", "cuDNN error", "CUBLAS_STATUS", "CUDA driver", "device-side assert", "NCCL", "NVML")
_MEMORY_WORDS = ("out of memory", "can't allocate memory", "Cannot allocate memory", "not enough memory")
_ASSERTION = "device-side assert"
_OF_A_PATH = frozenset({
    None, errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ELOOP,
    errno.ENAMETOOLONG, errno.EINVAL,
})
"""Errors of the operating system about a path rather than a disk; None: an OSError raised by a library."""
_BY_CODE = re.compile(r"\w+: (\w+ (?:at .+?:\d+ in step \d+|of an assertion on the device)): ")
_PROCESS_WORDS = ("DataLoader worker", "exited unexpectedly", "terminated abruptly")


@dataclass(frozen=True)
class Failure:
    """Why an attempt ended early. text: one line for people, which starts with the kind."""

    kind: Kind
    text: str

    @property
    def is_final(self) -> bool:
        """Whether a retry of the trial would fail again."""
        return self.kind in FINAL

    @property
    def spoils_the_process(self) -> bool:
        """No later attempt can run in this process: a CUDA error persists in it, and a preempted machine takes it
        away."""
        return self.kind in ("device", "preempted")


def failure_of(error: BaseException, *, step: int = 0) -> Failure:
    """The failure that an exception of an attempt means. step: of the training, at which it was raised."""
    kind = _kind(error)
    text = masked(" ".join(str(error).split()))
    origin = _origin_in_code(error, kind, step)
    if origin is not None:
        text = f"{type(error).__name__} {origin}: {text}"
    elif kind == "bug" or not text:
        text = f"{type(error).__name__}: {text}"
    place = place_in_plugin(error) if kind == "bug" else None
    if place is not None:
        text += f" (in a plugin, {place})"
    return Failure(kind, f"{kind}: {text}"[:2000])


def raised_by_code(text: str | None) -> str | None:
    """Type, place and step from the text of a failure that code may have raised; None for all other failures.

    An outage does not end in the same line of the same step with an error that does not look like an outage.
    """
    found = _BY_CODE.match(text or "")
    return None if found is None else found[1]


def _origin_in_code(error: BaseException, kind: Kind, step: int) -> str | None:
    """The place of an error that code may have raised, for `raised_by_code`."""
    if kind == "device" and _ASSERTION in str(error):
        return "of an assertion on the device"  # it surfaces wherever the device is next waited for
    if kind != "storage" or not isinstance(error, OSError) or error.errno not in _OF_A_PATH:
        return None
    place = _place(error)
    return None if place is None else f"at {place} in step {step}"


def _place(error: BaseException) -> str | None:
    """`my_loss/loss.py:31`: the innermost line of a plugin's code, else of vsetune's. The same on every machine."""
    place = place_in_plugin(error)
    if place is None:
        ours = [
            frame for frame in traceback.extract_tb(error.__traceback__)
            if Path(frame.filename).resolve().is_relative_to(PACKAGE_FOLDER)
        ]
        place = f"{ours[-1].filename}:{ours[-1].lineno}" if ours else None
    return None if place is None else "/".join(Path(place).parts[-2:])


def _kind(error: BaseException) -> Kind:
    if isinstance(error, ConfigError) and error.__cause__ is not None and _is_outage(error.__cause__):
        return _kind(error.__cause__)  # while a plugin was built
    if isinstance(error, VsetuneError):
        return _own_kind(error)
    if isinstance(error, ValidationError):
        return "configuration"
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return "memory"
    if _is_of_network(error):
        return "network"
    if isinstance(error, OSError):
        return "memory" if error.errno == errno.ENOMEM else "storage"
    if isinstance(error, RuntimeError):
        return _kind_of_runtime_error(str(error))
    return "bug"


def _own_kind(error: VsetuneError) -> Kind:
    if isinstance(error, AttemptError) and error.kind in _OF_ATTEMPTS:
        return _OF_ATTEMPTS[error.kind]
    return next((kind for own, kind in _OWN if isinstance(error, own)), "bug")


def _is_of_network(error: BaseException) -> bool:
    """Includes exceptions that a library made from a network error, with its own text and without an error number."""
    if isinstance(error, ConnectionError | TimeoutError) or type(error).__module__.split(".")[0] in _NETWORK_PACKAGES:
        return True
    if not isinstance(error, OSError):
        return False
    cause = error.__cause__ or error.__context__
    return error.errno in _NETWORK_ERRNOS or (error.errno is None and cause is not None and _is_of_network(cause))


def _is_outage(error: BaseException) -> bool:
    """Whether the error has a cause outside the code that raised it."""
    is_of_storage = isinstance(error, OSError) and error.errno not in _OF_A_PATH
    return is_of_storage or _kind(error) in ("network", "memory", "device")


def _kind_of_runtime_error(text: str) -> Kind:
    """PyTorch raises most errors as RuntimeError; only the text distinguishes them."""
    if any(word in text for word in _MEMORY_WORDS):
        return "memory"
    if any(word in text for word in _DEVICE_WORDS):
        return "device"
    return "process" if any(word in text for word in _PROCESS_WORDS) else "bug"


@contextmanager
def scoring(
    split: str, *, where: str, step: int, on_progress: Callable[[], None]
) -> Iterator[Callable[[int, int], None]]:
    """Adds the place to errors about non-finite similarities, and logs the progress of a long scoring. where: study,
    trial and attempt.

    Yields a `Report`; on_progress is called with each.
    """
    logged = LoggedProgress(f"{where} split {split}")

    def report(done: int, total: int) -> None:
        on_progress()
        logged(done, total)

    try:
        yield report
    except NumericError as error:
        raise NumericError(error.problem.at(f"{where} step {step}: split {split}")) from error


def out_of_memory(error: Exception, *, where: str, step: int) -> AttemptError:
    """The error, in one line, of an attempt for which the GPU has too little memory."""
    reason = str(error).partition("\n")[0]
    failure = AttemptError(
        "VSE-T004", "{where} step {step}: {reason} Set training.chunk_size, or lower training.batch_size or resources "
        "per GPU.", where=where, step=step, reason=reason,
    )
    failure.kind = "memory"
    return failure
