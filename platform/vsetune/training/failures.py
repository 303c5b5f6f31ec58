"""What goes wrong in an attempt: whether it would only go wrong again, and where it happened.

Final are configuration, data and numbers: the same trial would fail the same way. Everything else (storage, network,
device, memory, the death of a process) happened *to* the trial: it is an interruption, and the trial goes on later.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import ValidationError

from vsetune.config.spec.secrets import masked
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
from vsetune.plugins.plugin_loading import place_in_plugin
from vsetune.scoring.pair_scores import LoggedProgress

Kind = Literal[
    "configuration", "data", "numeric", "checkpoint", "bug", "storage", "network", "device", "memory", "process",
    "preempted",
]
FINAL: frozenset[Kind] = frozenset({"configuration", "data", "numeric", "checkpoint", "bug"})
"""Kinds that fail a trial for good; `bug` is an exception that nobody foresaw."""
_OF_ATTEMPTS: dict[str, Kind] = {"memory": "memory", "device": "device"}

_NETWORK_ERRNOS = frozenset({
    errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT, errno.EHOSTUNREACH,
    errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN,
})
_NETWORK_PACKAGES = frozenset({"botocore", "urllib3", "requests", "httpx", "aiohttp"})
_DEVICE_WORDS = ("CUDA error", "cuDNN error", "CUBLAS_STATUS", "CUDA driver", "device-side assert", "NCCL", "NVML")
_MEMORY_WORDS = ("out of memory", "can't allocate memory", "Cannot allocate memory", "not enough memory")
_PROCESS_WORDS = ("DataLoader worker", "exited unexpectedly", "terminated abruptly")


@dataclass(frozen=True)
class Failure:
    """Why an attempt ended early. text: one line for people, it opens with the kind."""

    kind: Kind
    text: str

    @property
    def is_final(self) -> bool:
        """The trial would fail again."""
        return self.kind in FINAL

    @property
    def spoils_the_process(self) -> bool:
        """No later attempt can run there: a CUDA error stays in its process, a machine that goes takes it along."""
        return self.kind in ("device", "preempted")


def failure_of(error: BaseException) -> Failure:
    """Which failure an exception of an attempt is."""
    kind = _kind(error)
    text = masked(" ".join(str(error).split()))
    name = f"{type(error).__name__}: " if kind == "bug" or not text else ""
    place = place_in_plugin(error) if kind == "bug" else None
    if place is not None:
        text += f" (in a plugin, {place})"
    return Failure(kind, f"{kind}: {name}{text}"[:2000])


def _kind(error: BaseException) -> Kind:
    if isinstance(error, VsetuneError):
        return _own_kind(error)
    if isinstance(error, ValidationError):
        return "configuration"
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return "memory"
    if isinstance(error, OSError):
        return _kind_of_os_error(error)
    if type(error).__module__.partition(".")[0] in _NETWORK_PACKAGES:
        return "network"
    if isinstance(error, RuntimeError):
        return _kind_of_runtime_error(str(error))
    return "bug"


def _own_kind(error: VsetuneError) -> Kind:
    """Of the exceptions that we raise, the narrower before the wider."""
    if isinstance(error, DamagedCheckpoint):  # of bits, not of the trial, which can start again without it
        return "storage"
    if isinstance(error, StaleCheckpoint):
        return "checkpoint"
    if isinstance(error, StorageError):
        return "storage"
    if isinstance(error, DataError):
        return "data"
    if isinstance(error, NumericError):
        return "numeric"
    if isinstance(error, Preempted):
        return "preempted"
    if isinstance(error, AttemptError):
        return _OF_ATTEMPTS.get(error.kind, "bug")
    return "configuration" if isinstance(error, ConfigError) else "bug"


def _kind_of_os_error(error: OSError) -> Kind:
    if error.errno == errno.ENOMEM:
        return "memory"
    is_network = isinstance(error, ConnectionError | TimeoutError) or error.errno in _NETWORK_ERRNOS
    return "network" if is_network else "storage"


def _kind_of_runtime_error(text: str) -> Kind:
    """PyTorch tells most of its troubles as RuntimeError; only its words tell them apart."""
    if any(word in text for word in _MEMORY_WORDS):
        return "memory"
    if any(word in text for word in _DEVICE_WORDS):
        return "device"
    return "process" if any(word in text for word in _PROCESS_WORDS) else "bug"


@contextmanager
def scoring(
    split: str, *, where: str, step: int, on_progress: Callable[[], None]
) -> Iterator[Callable[[int, int], None]]:
    """Says where a similarity was not finite, and how far a long scoring has come. where: study, trial and attempt.

    Yields a `Report`; on_progress is called with each.
    """
    logged = LoggedProgress(f"{where} split {split}")

    def report(done: int, total: int) -> None:
        on_progress()
        logged(done, total)

    try:
        yield report
    except NumericError as error:
        raise NumericError(f"{where} step {step}: split {split}: {error}") from error


def out_of_memory(error: Exception, *, where: str, step: int) -> AttemptError:
    """The error of an attempt for which the GPU has too little memory, in one line."""
    reason = str(error).partition("\n")[0]
    failure = AttemptError(f"{where} step {step}: {reason} Lower training.batch_size or resources per GPU.")
    failure.kind = "memory"
    return failure
