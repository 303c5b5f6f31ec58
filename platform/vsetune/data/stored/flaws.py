"""What is wrong with some bytes, said by code that does not know where they came from."""

from __future__ import annotations


class Flaw(Exception):
    """A reason without a place. Whoever knows the place makes a DataError of it; none leaves `vsetune.data`."""
