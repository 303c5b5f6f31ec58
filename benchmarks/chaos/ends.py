"""How a driver must end, and what it may say: one line for a person, no innards."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

END_LIMIT_S = 60.0

_INNARDS = ("Traceback", "*** SIG", "core_worker", "Check failed", ".cc:", "Exception ignored", "Stack trace")
_HOW_TO_GO_ON = re.compile(r"--resume|interrupted")


@dataclass
class Injury:
    """One disturbance and what came of it. Times in seconds since the sweep started.

    phase: what had been waited for. stderr: what the driver said between the strike and the next one, or its end.
    problems: what should have been otherwise; empty is good.
    """

    number: int
    kind: str
    phase: str
    sweep: str
    round: int
    struck_s: float
    lasted_s: float = 0.0
    seconds: float = 0.0
    outcome: str = ""
    exit_code: int | None = None
    in_time: bool = True
    stderr: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def is_told(self) -> bool:
        return not innards(self.stderr)


def innards(stderr: str) -> list[str]:
    """Lines no person should see, of a driver's stderr."""
    return [line for line in stderr.splitlines() if any(word in line for word in _INNARDS)]


def tells_how_to_go_on(stderr: str) -> bool:
    return bool(_HOW_TO_GO_ON.search(stderr))
