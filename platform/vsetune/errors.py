"""The errors that users see, with their exit codes, and the messages they carry, with their stable codes.

A sentence stands where it is raised, with its code and its fields:
`raise DataError("VSE-D004", "{shard}: {missing} bytes are missing", shard=path, missing=3)`.
The letter names the package: A api, C config, O storage, M metrics, L losses, N networks, R records, D data, E search,
T training, B report, Q quality, S study, G nightly, X cli. A code keeps its meaning for ever and is not used again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_Plain = str | int | float | bool | None


class Problem(str):
    """One line of an error: a text with the stable code of its message and the fields it was made of.

    Text that is not from a message has no code. The fields are plain data: others than numbers become text.
    """

    code: str
    fields: Mapping[str, _Plain]

    def __new__(cls, text: str, code: str = "", fields: Mapping[str, Any] | None = None) -> Problem:
        problem = super().__new__(cls, text)
        problem.code = code
        problem.fields = {
            name: value if isinstance(value, int | float | None) else str(value)
            for name, value in (fields or {}).items()
        }
        return problem

    @classmethod
    def of(cls, code: str, text: str, /, **fields: Any) -> Problem:
        """text: a format string of the fields."""
        return cls(text.format_map(fields), code, fields)

    def at(self, place: object) -> Problem:
        """The same problem with its place in front: `place: text`."""
        return self.worded(f"{place}: {self}")

    def worded(self, text: str) -> Problem:
        """The same problem in other words."""
        return Problem(text, self.code, self.fields)


@dataclass(frozen=True)
class Message:
    """A sentence that several places raise. text: a format string of named fields."""

    code: str
    text: str

    def __call__(self, **fields: Any) -> Problem:
        return Problem.of(self.code, self.text, **fields)


class VsetuneError(Exception):
    """Root of the tree; catch this to catch everything vsetune raises on purpose.

    what: the whole text, or a code with `text` (a format string) and its fields.
    """

    def __init__(self, what: str = "", text: str | None = None, /, **fields: Any) -> None:
        super().__init__(what if text is None else Problem.of(what, text, **fields))

    @property
    def problem(self) -> Problem:
        """The text of the error, with its code and fields if it was made from a message."""
        text = self.args[0] if self.args else ""
        return text if isinstance(text, Problem) else Problem(str(self))


class UsageError(VsetuneError):
    """A problem that the person who started the command can fix. Exit code 2."""


class ConfigError(UsageError):
    """A study, recipe or trial that does not describe something we can run.

    problems: every problem of the file, one line each; the message joins them with newlines. Or a code with `text` (a
    format string) and its fields.
    """

    def __init__(self, problems: str | Sequence[str], text: str | None = None, /, **fields: Any) -> None:
        if isinstance(problems, str):
            problems = [problems if text is None else Problem.of(problems, text, **fields)]
        self.problems = told_once(problems)
        super().__init__("\n".join(self.problems))

    @property
    def problem(self) -> Problem:
        """The first problem."""
        first = self.problems[0] if self.problems else ""
        return first if isinstance(first, Problem) else Problem(first)


_CELL = re.compile(r"(?<![^\s])cell (\S+): ")


def told_once(lines: Sequence[str]) -> list[str]:
    """The lines in their order; of those that differ only in the cell that they name, the first, with all its cells."""
    cells: dict[str, tuple[str, list[str]]] = {}
    for line in lines:
        found = _CELL.search(line)
        key = line if found is None else line[: found.start()] + line[found.end() :]
        cells.setdefault(key, (line, []))[1].extend([] if found is None else [found[1]])
    return [_of_cells(line, list(dict.fromkeys(names))) for line, names in cells.values()]


def _of_cells(line: str, names: Sequence[str]) -> str:
    if len(names) < 2:
        return line
    more = f" and {len(names) - 3} more" if len(names) > 4 else ""
    text = _CELL.sub(lambda _: f"cells {', '.join(names[:3] if more else names)}{more}: ", line, count=1)
    return line.worded(text) if isinstance(line, Problem) else text


class MissingPlugin(ConfigError):
    """A folder or module named under `plugins` that does not exist; a study that has begun keeps copies."""


class DataError(UsageError):
    """Data on disk that is missing, damaged or does not fit."""


class StudyConflict(UsageError):
    """A study name is already used with another configuration."""


class StorageError(UsageError):
    """Storage that cannot be reached or cannot take the data; the same operation may succeed later."""


class Overtaken(StorageError):
    """Another process goes on with the work of this one: what this one would store no longer counts."""


class DamagedObject(StorageError):
    """An object of the home that differs from what was written."""


class UnusableStore(StorageError):
    """A tracking store that no retry will open; other errors of a store are outages, which end by themselves."""


class StaleCheckpoint(StorageError):
    """The checkpoint in a trial's folder cannot be continued; the trial can be started again without it."""


class DamagedCheckpoint(StaleCheckpoint):
    """Files of a trial whose content changed after they were written; the trial can start again beside them."""


class IncompatibleCurves(VsetuneError):
    """Curves measured under different conditions; comparing them would be meaningless."""


class AttemptError(VsetuneError):
    """One attempt failed. Its trial is recorded as failed; the study goes on.

    kind: short machine-readable cause (`numeric`, `data`, `memory`, ...), stored with the attempt.
    """

    kind = "failed"


class NumericError(AttemptError):
    """A value that must be finite is not."""

    kind = "numeric"


class Preempted(AttemptError):
    """The attempt was asked to leave its machine, and has left a checkpoint of its last step."""

    kind = "preempted"


_LONGEST = 200
_PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")


def one_line(what: object, *, most: int = _LONGEST) -> str:
    """The text (of an error: its own, or its class) without line ends, control characters and passwords of addresses.

    most: length limit, in characters; a longer text is cut and ends in `...`.
    """
    text = " ".join(str(what).split()) or type(what).__name__
    text = _PASSWORD.sub("***@", text)
    shown = "".join(sign if sign.isprintable() else f"\\x{ord(sign):02x}" for sign in text[: most + 1])
    return shown if len(shown) <= most else shown[:most] + "..."
