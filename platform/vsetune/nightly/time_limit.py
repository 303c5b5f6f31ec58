"""A time limit for steps whose own timeouts restart with every byte, so that they may never end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def within(limit_s: float, step: Callable[[], T]) -> T:
    """Return or raise the step's result. TimeoutError after the limit; the step's thread then runs on until the process
    ends."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(step())
        except BaseException as error:  # raised again in the waiting thread
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no end within {limit_s:g} s")
    return results[0]
