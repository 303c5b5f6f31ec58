"""Keeps secrets out of what a process logs, whichever library logs it and whichever handler writes it."""

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
        """Formatters keep the traceback they made in `exc_text`, and print that."""
        is_text = name in ("exc_text", "stack_info") and isinstance(value, str)
        super().__setattr__(name, masked(value) if is_text else value)


def mask_output() -> None:
    """Mask every log record and every traceback of a thread from now on; the environment's secrets are known too.

    The traceback of the main thread is its caller's to print, with `print_masked_traceback`. Twice is as good as once.
    """
    remember_environment()
    logging.setLogRecordFactory(MaskedRecord)
    threading.excepthook = _of_a_thread


def print_masked_traceback(error: BaseException) -> None:
    """The traceback to stderr, as Python prints it but `masked`."""
    sys.stderr.write(masked("".join(traceback.format_exception(error))))


def _of_a_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        print_masked_traceback(args.exc_value)
