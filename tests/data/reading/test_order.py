"""The order of rows stays what it was: results of a seed depend on it."""

from __future__ import annotations

import random

import pytest

from vsetune.data.batches.sample_stream import shuffled


@pytest.mark.parametrize(("rows", "size"), [(100, 7), (100, 8), (100, 64), (5, 8), (8, 8), (9, 1), (0, 4)])
def test_a_full_buffer_gives_the_row_that_randrange_names(rows: int, size: int) -> None:
    expected, buffer, rng = [], [], random.Random("items/0/0")
    for row in range(rows):
        if len(buffer) < size:
            buffer.append(row)
        else:
            drawn = rng.randrange(size)
            expected.append(buffer[drawn])
            buffer[drawn] = row
    rng.shuffle(buffer)
    expected += buffer[::-1]
    assert list(shuffled(range(rows), size, random.Random("items/0/0"))) == expected
    assert sorted(expected) == list(range(rows))
