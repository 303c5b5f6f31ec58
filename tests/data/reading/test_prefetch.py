from __future__ import annotations

import gc
import subprocess
import sys
import threading

import pytest

from vsetune.data.batches.reader import Prefetched


def test_items_arrive_in_order_and_then_end():
    items = Prefetched((number for number in range(100)), depth=2)
    assert list(items) == list(range(100))
    with pytest.raises(StopIteration):
        next(items)


def test_an_error_arrives_after_the_items_before_it():
    def failing():
        yield 1
        raise ValueError("broken")

    items = Prefetched(failing(), depth=4)
    assert next(items) == 1
    with pytest.raises(ValueError, match="broken"):
        next(items)
    with pytest.raises(StopIteration):
        next(items)


def test_no_more_than_depth_items_are_made_ahead():
    made = [threading.Event() for _ in range(6)]

    def counting():
        for each in made:
            each.set()
            yield each

    with Prefetched(counting(), depth=3) as items:
        next(items)
        assert made[3].wait(10)
        assert not made[4].wait(0.05)
        next(items)
        assert made[4].wait(10)


def test_closing_closes_the_generator_in_its_thread():
    closed_in = []

    def watched():
        try:
            while True:
                yield 1
        finally:
            closed_in.append(threading.current_thread().name)

    with Prefetched(watched(), depth=1) as items:
        next(items)
    assert closed_in == ["vsetune-reader_0"]
    items.close()


def test_an_abandoned_iterator_closes_its_generator():
    closed = threading.Event()

    def watched():
        try:
            while True:
                yield 1
        finally:
            closed.set()

    items = Prefetched(watched(), depth=2)
    next(items)
    del items
    gc.collect()
    assert closed.wait(10)


def test_an_abandoned_iterator_does_not_hold_up_the_end_of_the_program():
    program = (
        "from vsetune.data.batches.reader import Prefetched\n"
        "import itertools\n"
        "items = Prefetched((number for number in itertools.count()), depth=2)\n"
        "print(next(items))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0\n", "")
