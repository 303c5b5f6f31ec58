"""Flaws of bytes, raised by code that does not know where the bytes came from."""

from __future__ import annotations


class Flaw(Exception):
    """A reason without a place. The caller that knows the place makes a DataError of it; none leaves `vsetune.data`."""
