"""A sum that is kept while its numbers change, to the last bit the one that adding them up again would give."""

from __future__ import annotations

from itertools import accumulate


class OrderedSum:
    """Of numbers in order, added from the first to the last as a loop would. A changed number costs additions from its
    place on: those of trials handed out after it, a few where trials end in about the order in which they began."""

    def __init__(self) -> None:
        self._numbers: list[float] = []
        self._until: list[float] = [0.0]
        """The sums of the first 0, 1, 2, ... numbers, as far as they still hold."""

    def append(self, number: float) -> None:
        self._numbers.append(number)

    def put(self, place: int, number: float) -> None:
        """In place of the one at `place`, which is below the number of numbers."""
        if self._numbers[place] != number:
            self._numbers[place] = number
            del self._until[place + 1:]

    @property
    def total(self) -> float:
        known = len(self._until) - 1
        if known < len(self._numbers):
            last = self._until.pop()
            self._until += accumulate(self._numbers[known:], initial=last)
        return self._until[-1]
