"""A limit for steps whose own timeouts count from one byte to the next, so that they may never end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def within(limit_s: float, step: Callable[[], T]) -> T:
    """What the step returns or raises; TimeoutError after the limit: it is then left behind, and ends with the process.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(step())
        except BaseException as error:  # it is raised where somebody waits for it
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no end within {limit_s:g} s")
    return results[0]
