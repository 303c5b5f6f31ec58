"""How far a store may fall behind what is recorded before those who record wait for it."""

from __future__ import annotations

import logging
from pathlib import Path

_log = logging.getLogger(__name__)
MOST_BEHIND = 10_000
"""So many records may wait for a store that answers, or in memory for the disk; then reports wait."""
LONGEST_WAIT_S = 1.0
"""How long one report waits at most: a full disk slows a study down and never stops it."""


class Backlog:
    """Says whether there is room for another record, and says once in one line that there is none.

    Records of a store that is away wait on the disk, where nobody waits for them. What is left over from that time, or
    from an earlier process, makes nobody wait either, as long as it does not grow.
    """

    def __init__(self, journal: Path, pending: int) -> None:
        self._journal, self._left_over = journal, pending
        self._is_told = False

    def went_on(self, pending: int) -> None:
        """A store that was away answers again."""
        self._left_over = pending

    def has_room(self, pending: int, *, unwritten: int, is_away: bool) -> bool:
        """unwritten: records that are in memory alone. is_away: the store does not answer, or is not open yet."""
        if unwritten > MOST_BEHIND:
            return False
        return is_away or pending <= max(MOST_BEHIND, self._left_over)

    def tell(self, pending: int, *, has_room: bool) -> None:
        """One line when reports begin to wait, and one when the store has caught up by half."""
        if self._is_told and pending <= MOST_BEHIND // 2:
            self._is_told = False
            _log.warning("the tracking store keeps up again; %d records wait", pending)
        elif not has_room and not self._is_told:
            self._is_told = True
            _log.warning(
                "%s: %d records wait for the tracking store or the disk, more than %d: reports now wait up to %g s "
                "each; free space, or bring the store nearer to this machine", self._journal, pending, MOST_BEHIND,
                LONGEST_WAIT_S,
            )
