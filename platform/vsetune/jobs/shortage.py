"""Says so when trials wait because no node has room for them any more, and when one has again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from vsetune.config.study.resources import Needs
from vsetune.jobs.capacity import Capacity
from vsetune.jobs.node_types import refused

TOLD_AFTER_S = 30.0
"""A node that dies is often replaced; and where Ray adds nodes, none is there at first."""
_LOOK_EVERY_S = 5.0


class Shortage:
    """needs_of: what the trials of a cell occupy. unfinished: the cells that have trials to run. say: takes a line."""

    def __init__(
        self, capacity: Capacity, needs_of: Mapping[str, Needs], unfinished: Callable[[], list[str]],
        say: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._capacity, self._needs_of, self._unfinished = capacity, needs_of, unfinished
        self._say, self._clock = say, clock
        self._since: dict[Needs, float] = {}
        self._told: set[Needs] = set()
        self._next_look = float("-inf")

    def look(self) -> None:
        """Every now and then: is there a node for everything that is still to run?"""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_EVERY_S
        nodes = self._capacity.nodes()
        lacking = {needs: why for needs in set(self._needs_of.values()) if (why := refused(needs, (), nodes))}
        for needs in [needs for needs in self._since if needs not in lacking]:
            del self._since[needs]
            if needs in self._told:
                self._told.remove(needs)
                self._say(f"a node has room again for trials with {needs}")
        for needs, why in sorted(lacking.items()):
            if now - self._since.setdefault(needs, now) >= TOLD_AFTER_S and needs not in self._told:
                self._tell(needs, why)

    def _tell(self, needs: Needs, why: str) -> None:
        cells = [cell for cell in self._unfinished() if self._needs_of[cell] == needs]
        if cells:
            self._told.add(needs)
            more = f" and {len(cells) - 1} more cells" if len(cells) > 1 else ""
            self._say(f"waiting for a node: a trial of {cells[0]}{more} asks for {why}; {self._hope(needs)}")

    def _hope(self, needs: Needs) -> str:
        types = [str(kind) for kind in self._capacity.types if kind.most and refused(needs, [kind], ()) is None]
        if types:
            return f"the cluster may add {' or '.join(types)}"
        return "it goes on when one comes; to go on without, stop the study, lower `resources` and resume it"
