"""A setting of a winner that lies at an end of what was searched: a better value may lie beyond."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RangeEnd:
    """setting: dotted name. value, searched: it and the range. place, line: where the study file says what is searched,
    and what says more there; all but the setting as the file writes them."""

    setting: str
    value: str
    end: Literal["low", "high"]
    searched: str
    place: str
    line: str

    def sentence(self, cell: str) -> str:
        """cell: as it is called where this is read."""
        return (
            f"{cell}: {self.setting} {self.value} of the winner is at the {self.end} end of what was searched "
            f"({self.searched}), so a better value may lie beyond. To search wider, give a copy of the study file "
            f"another name and write under {self.place}: {self.line}"
        )
