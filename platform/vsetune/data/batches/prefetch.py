"""Work ahead in a background thread, so that reading overlaps with training."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_POLL_S = 0.1
_JOIN_S = 10.0


@dataclass(frozen=True)
class _End:
    error: BaseException | None


class Prefetched(Iterator[T], Generic[T]):
    """Items of a generator, up to `depth` of them made ahead by a thread.

    An exception of the generator is raised here, in its place. The thread ends with the items, with `close()`, when
    this object is garbage-collected, and at interpreter exit, whichever comes first; the generator is then closed
    (in the thread), so that its files and worker processes go too.
    """

    def __init__(self, items: Generator[T, None, None], *, depth: int) -> None:
        buffer: queue.Queue[Any] = queue.Queue(depth)
        stop = threading.Event()
        # The thread must not refer to `self`, or an abandoned iterator would never be collected.
        thread = threading.Thread(target=_produce, args=(items, buffer, stop), name="vsetune-reader", daemon=True)
        self._buffer = buffer
        self._is_finished = False
        self._shut_down = weakref.finalize(self, _shut_down, buffer, stop, thread)
        thread.start()

    def __next__(self) -> T:
        if self._is_finished:
            raise StopIteration
        item = self._buffer.get()
        if not isinstance(item, _End):
            return item  # type: ignore[no-any-return]
        self.close()
        if item.error is not None:
            raise item.error
        raise StopIteration

    def close(self) -> None:
        """Stop the thread; later calls of next() find the end. Harmless when repeated."""
        self._is_finished = True
        self._shut_down()

    def __enter__(self) -> Prefetched[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _produce(items: Generator[Any, None, None], buffer: queue.Queue[Any], stop: threading.Event) -> None:
    error: BaseException | None = None
    try:
        for item in items:
            if not _offer(buffer, item, stop):
                return
    except BaseException as caught:  # passed to the consumer, which raises it
        error = caught
    finally:
        items.close()
    _offer(buffer, _End(error), stop)


def _offer(buffer: queue.Queue[Any], item: Any, stop: threading.Event) -> bool:
    """Put the item as soon as there is room; False if asked to stop."""
    while not stop.is_set():
        try:
            buffer.put(item, timeout=_POLL_S)
            return True
        except queue.Full:
            continue
    return False


def _shut_down(buffer: queue.Queue[Any], stop: threading.Event, thread: threading.Thread) -> None:
    stop.set()
    while True:
        try:
            buffer.get_nowait()
        except queue.Empty:
            break
    if thread is not threading.current_thread():
        thread.join(_JOIN_S)
