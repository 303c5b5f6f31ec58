"""Every exception vsetune raises on purpose.

VsetuneError
├── UsageError            the person can fix it; the command line prints one line and exits 2
│   ├── ConfigError       a study, recipe or trial file: unknown key, value out of range, contradiction
│   │   └── MissingPlugin     a folder or module of plugin components that does not exist
│   ├── DataError         a data folder, shard, image, caption or manifest
│   ├── StudyConflict     a study name that is already used with another configuration
│   └── StorageError      storage that cannot be reached or is full: an interruption, not a user error
│       ├── UnusableStore     a tracking store that no retry can open: misnamed, damaged, forbidden
│       └── StaleCheckpoint   a checkpoint of another trial or data set, or of another version
│           └── DamagedCheckpoint   a checkpoint whose content changed after it was written; it can be set aside
├── IncompatibleCurves    two curves that must not be compared (other cadence, protocol or data)
└── AttemptError          one attempt failed; the study goes on
    ├── NumericError      a loss, gradient or similarity that is not a finite number
    └── Preempted         its process will be ended; it has left a checkpoint, an interruption

Messages are one line: where, what we got, what we need, how to fix.
"""

from __future__ import annotations


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
