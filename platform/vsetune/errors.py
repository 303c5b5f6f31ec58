"""The errors that users see, with their exit codes, and foreign text inside their messages."""

from __future__ import annotations

import re


class VsetuneError(Exception):
    """Root of the tree; catch this to catch everything vsetune raises on purpose."""


class UsageError(VsetuneError):
    """A problem that the person who started the command can fix. Exit code 2."""


class ConfigError(UsageError):
    """A study, recipe or trial that does not describe something we can run.

    problems: every problem of the file, one line each; the message joins them with newlines.
    """

    def __init__(self, problems: str | list[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class MissingPlugin(ConfigError):
    """A folder or module named under `plugins` that does not exist; a study that has begun keeps copies."""


class DataError(UsageError):
    """Data on disk that is missing, damaged or does not fit."""


class StudyConflict(UsageError):
    """A study name is already used with another configuration."""


class StorageError(UsageError):
    """Storage that cannot be reached or cannot take the data; the same operation may succeed later."""


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
