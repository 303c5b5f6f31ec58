"""A setting of a winner at an end of its searched range: a better value may lie beyond."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RangeEnd:
    """setting: dotted name. value, searched: its value and the searched range. place, line: the section of the study
    file that sets the range, and the line for a wider range. All but the setting are formatted as in the file."""

    setting: str
    value: str
    end: Literal["low", "high"]
    searched: str
    place: str
    line: str

    def sentence(self, cell: str) -> str:
        """cell: its name in the surrounding text."""
        return (
            f"{cell}: {self.setting} {self.value} of the winner is at the {self.end} end of what was searched "
            f"({self.searched}), so a better value may lie beyond. To search wider, give a copy of the study file "
            f"another name and write under {self.place}: {self.line}"
        )
