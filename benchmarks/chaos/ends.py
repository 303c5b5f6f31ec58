"""How a driver must end, and what it may say: one line for a person, no innards."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from chaos.disturbances import Kind

END_LIMIT_S = 60.0

_INNARDS = ("Traceback", "*** SIG", "core_worker", "Check failed", ".cc:", "Exception ignored", "Stack trace")
_HOW_TO_GO_ON = re.compile(r"--resume|interrupted")
_DONE = {0, 4}


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


def code_problems(kind: Kind, code: int, *, at_start: bool, is_over: bool) -> list[str]:
    """What is wrong with the exit code of a driver that ended after a disturbance of this kind.

    at_start: the study may not have begun, then 2 says that something it needs is not there. is_over: every trial had
    ended, then 0 is right whatever struck, and 4 while the tracking store is away.
    """
    allowed = {*kind.codes} | ({2} if at_start else set()) | (_DONE if is_over or not kind.must_end else set())
    problems = [] if code in allowed else [f"exit code {code}, not one of {sorted(allowed)}"]
    if kind.must_go_on and code not in _DONE:
        problems.append("ended the study, which should have gone on")
    return problems


def word_problems(kind: Kind, injury: Injury) -> list[str]:
    """What is wrong with what the driver said after the disturbance."""
    seen = innards(injury.stderr)
    problems = [f"says {seen[0][:150]}"] if seen else []
    was_killed = injury.exit_code is not None and injury.exit_code < 0
    must_tell = kind.must_end and injury.exit_code not in (*_DONE, None) and not was_killed
    if must_tell and not _HOW_TO_GO_ON.search(injury.stderr):
        problems.append("does not say how to go on")
    return problems
