"""Removes secrets from a process's logs, whichever library logs and whichever handler writes."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from typing import Any

from vsetune.config.spec.secrets import masked, remember_environment


class MaskedRecord(logging.LogRecord):
    """A log record whose message and traceback are `masked`.

    A filter would have to be added to every handler of every library; MLflow, Optuna and Ray bring their own.
    """

    def getMessage(self) -> str:  # noqa: N802  the name is logging's
        return masked(super().getMessage())

    def __setattr__(self, name: str, value: Any) -> None:
        """Mask also the traceback that formatters store in `exc_text` and print."""
        is_text = name in ("exc_text", "stack_info") and isinstance(value, str)
        super().__setattr__(name, masked(value) if is_text else value)


def mask_output() -> None:
    """Mask every log record and every traceback of a thread from now on, including secrets from the environment.

    The caller prints the main thread's traceback, with `print_masked_traceback`. Calling this twice does no harm.
    """
    remember_environment()
    logging.setLogRecordFactory(MaskedRecord)
    threading.excepthook = _of_a_thread


def print_masked_traceback(error: BaseException) -> None:
    """Write the traceback to stderr, as Python prints it but `masked`."""
    sys.stderr.write(masked("".join(traceback.format_exception(error))))


def _of_a_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        print_masked_traceback(args.exc_value)
