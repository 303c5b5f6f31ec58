"""The interface of every tracking store, and the rules they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from vsetune.config.spec.base import did_you_mean
from vsetune.errors import StorageError, StudyConflict, UsageError
from vsetune.tracking.records import (
    PLUGIN_TAG,
    AttemptRecord,
    AttemptStart,
    AttemptStatus,
    StudyRecord,
    ValidationPoint,
)

StudyStatus = Literal["finished", "failed", "killed"]


class TrackingStore(ABC):
    """Keeps studies, their attempts and their curves. It is the truth about an attempt; other views are copies.

    Who writes: one driver process per study. Different studies may be written at the same time by different
    processes, and anybody may read at any time. Workers never write; they report to the driver.

    What survives `kill -9` of the driver: everything a method did before it returned. A method that was
    interrupted half-way leaves a store in which the same call can be made again.

    Idempotence: after a restart the driver may repeat what it no longer knows to have been done.
    `open_study(resume=True)`, `start_attempt` and `record_points` change nothing when repeated: a (trial, number)
    is one attempt for ever, a step of its curve is recorded once. `finish_attempt` and `finish_study` repeated
    replace what they said before.

    Life of an attempt: running, then finished, pruned, failed or killed. Reopening a study marks the attempts that
    were still running as killed, since their driver is gone; starting such an attempt again makes it running again.
    Points are accepted in any status, because the last report of a worker may come late.

    Units: M-Recall and recalls in per cent of the validation split; epochs are fractions of the train pairs.

    Every method raises StorageError (one line) when the place behind the store is unreachable, full or read-only.
    """

    @abstractmethod
    def open_study(self, record: StudyRecord, *, resume: bool) -> None:
        """Create a study, or reopen it.

        Raises StudyConflict if the name stands for another fingerprint, if the study exists and resume is
        false, or if the name is taken by something else in the store (a deleted study, a foreign experiment).
        Resuming a study that does not exist creates it.
        """

    @abstractmethod
    def start_attempt(self, start: AttemptStart) -> str:
        """The id of attempt (start.trial, start.number) of an open study, created if it is new.

        An existing attempt keeps what it was started with. Raises UsageError for an unknown study.
        """

    @abstractmethod
    def record_points(self, attempt_id: str, points: Sequence[ValidationPoint]) -> None:
        """Append validations. Steps that the curve already has are ignored, also across restarts.

        Raises UsageError for an unknown attempt.
        """

    def record_batch(self, points: Mapping[str, Sequence[ValidationPoint]]) -> None:
        """`record_points` for several attempts, by id, where the store can in one step.

        Raises what `record_points` raises for one of them; the others may have been recorded by then, and repeating
        them changes nothing.
        """
        for attempt_id, of_attempt in points.items():
            self.record_points(attempt_id, of_attempt)

    @abstractmethod
    def finish_attempt(
        self,
        attempt_id: str,
        status: AttemptStatus,
        summary: Mapping[str, float],
        artifacts: Sequence[Path],
        error: str | None,
    ) -> None:
        """End an attempt. artifacts: files to keep with it (best checkpoint, ...), copied before this returns.

        error: one line for people, or None. Raises UsageError for an unknown attempt or status `running`, and
        StorageError for an artifact that cannot be read.
        """

    @abstractmethod
    def finish_study(self, name: str, status: StudyStatus, artifacts: Sequence[Path]) -> None:
        """End a study. artifacts: files to keep with it (exports of the leaderboard). UsageError if unknown."""

    @abstractmethod
    def attempts(self, study: str) -> list[AttemptRecord]:
        """All attempts of a study in the order they started. UsageError for an unknown study.

        The summary of an attempt that has not finished holds what its last point tells: `train_seconds`, and
        `device_seconds` when the point has it among its metrics.
        """

    @abstractmethod
    def attempt(self, attempt_id: str) -> AttemptRecord:
        """One attempt, as `attempts` gives it. UsageError for an unknown attempt."""

    @abstractmethod
    def points(self, attempt_id: str) -> list[ValidationPoint]:
        """All validations of an attempt with all their numbers, in the order of the training. UsageError for an unknown
        attempt."""

    @abstractmethod
    def keep_artifacts(self, attempt_id: str, artifacts: Sequence[Path], *, folder: str) -> None:
        """Add files to an attempt in any status, copied before this returns; one of the same name is replaced.

        folder: where among the artifacts they go (`gallery`). UsageError for an unknown attempt, StorageError for a
        file that cannot be read.
        """

    @abstractmethod
    def fetch_artifact(self, attempt_id: str, name: str, into: Path) -> Path | None:
        """A file kept with an attempt, to be read, not changed; None if it was never kept or is gone.

        name: with its folder, `best.safetensors` or `gallery/page.html`. into: an existing local folder for a copy,
        where one is needed. UsageError for an unknown attempt.
        """

    def artifact_names(self, attempt_id: str, folder: str) -> list[str]:
        """Names, with the folder, of the files that `keep_artifacts` kept there; none where a store cannot tell."""
        return []

    def metric_curves(
        self, attempt_ids: Sequence[str], names: Sequence[str]
    ) -> dict[str, dict[str, tuple[tuple[float, float], ...]]]:
        """By attempt and metric, (epoch, value) of every validation that has it. What is not there is left out.
        UsageError for an unknown attempt."""
        found: dict[str, dict[str, tuple[tuple[float, float], ...]]] = {}
        for attempt_id in attempt_ids:
            points = self.points(attempt_id)
            curves = {
                name: tuple((point.epoch, point.metrics[name]) for point in points if name in point.metrics)
                for name in names
            }
            if any(curves.values()):
                found[attempt_id] = {name: curve for name, curve in curves.items() if curve}
        return found

    def experiment_of(self, study: str) -> str | None:
        """The id of the study's experiment in MLflow's UI, for the links of `run_descriptions`; None where it has none.
        UsageError for an unknown study."""
        return None

    @abstractmethod
    def studies(self) -> list[StudyRecord]:
        """All studies, oldest first."""

    @abstractmethod
    def close_stale(self, older_than_s: float, now: float | None = None, except_study: str | None = None) -> int:
        """End what an earlier crash left running and nobody resumed; how many attempts that were.

        An attempt shows life when it starts and with every batch of points. One that is running and showed none for
        more than `older_than_s` seconds becomes killed; so does a running study none of whose attempts runs, when it
        has been silent as long. A driver that lives after all loses nothing: its next `finish_attempt` says how it
        ended. now: seconds since 1970, default: the clock. except_study: left alone, the caller drives it.
        """


def require_same_study(known: StudyRecord, record: StudyRecord, *, resume: bool) -> None:
    """StudyConflict if `record` must not reopen `known`, a study of the same name."""
    if known.fingerprint != record.fingerprint:
        changes = _changes(known, record)
        shown = ", ".join(changes[:_SHOWN]) + (f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else "")
        raise StudyConflict(
            f"study {record.name}: exists with another configuration ({shown or 'fingerprint ' + known.fingerprint}); "
            "give the changed study another name, or undo the change"
        )
    if not resume:
        raise StudyConflict(f"study {record.name}: exists already with this file; continue it with --resume")


_SHOWN = 4
_FREE_TO_CHANGE = ("description", "plugins", "resources", "tracking")


def _changes(known: StudyRecord, record: StudyRecord) -> list[str]:
    """`key: old -> new` for everything that differs and matters; nothing when the old file is not known."""
    if not known.config:
        return []
    old, new = _flat(known.config), _flat(record.config)
    keys = [key for key in {**old, **new} if key.split(".")[0] not in _FREE_TO_CHANGE]
    changes = [f"{key}: {old.get(key)} -> {new.get(key)}" for key in keys if old.get(key) != new.get(key)]
    data = [each.tags.get("data_fingerprint") for each in (known, record)]
    if data[0] != data[1]:
        changes = [change for change in changes if not change.startswith("data.path: ")]
        changes.insert(0, f"the data set: {data[0]} -> {data[1]}")
    for tag in sorted({tag for each in (known, record) for tag in each.tags if tag.startswith(PLUGIN_TAG)}):
        code = [each.tags.get(tag, "none")[:12] for each in (known, record)]
        if code[0] != code[1]:
            changes.insert(0, f"the code of {tag.removeprefix(PLUGIN_TAG)}: {code[0]} -> {code[1]}")
    return changes


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted keys; lists of mappings by position."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
            value = {f"[{position}]": entry for position, entry in enumerate(value)}
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}".replace(".[", "[")] = value
    return flat


def require_free_name(name: str, experiment: str, *, is_deleted: bool, is_ours: bool) -> None:
    """StudyConflict if the name of a study is taken by an MLflow experiment that cannot hold it."""
    if is_deleted:
        raise StudyConflict(
            f"study {name}: MLflow still holds a deleted experiment of this name; bring it back with `mlflow "
            f"experiments restore --experiment-id {experiment}`, remove it with `mlflow gc`, or choose another name"
        )
    if not is_ours:
        raise StudyConflict(
            f"study {name}: MLflow experiment {experiment} has this name and is not a study of vsetune; "
            "choose another name, or rename the experiment"
        )


def require_terminal(attempt_id: str, status: AttemptStatus) -> None:
    """UsageError if an attempt cannot end in `status`."""
    if status == "running":
        raise UsageError(f"attempt {attempt_id}: cannot end as running; need finished, pruned, failed or killed")


def require_files(place: str, artifacts: Sequence[Path]) -> None:
    """StorageError if an artifact to keep with `place` is not there."""
    for artifact in artifacts:
        if not artifact.is_file():
            raise StorageError(f"{place}: no artifact {artifact}; the file must exist until the call returns")


def unknown_study(name: str, known: Sequence[str]) -> UsageError:
    first, rest = sorted(known)[:10], len(known) - 10
    listed = (", ".join(first) or "none") + (f" and {rest} more" if rest > 0 else "")
    return UsageError(
        f"study {name}: not in this store, which has: {listed}; {did_you_mean(name, known)}check the name and the "
        "tracking URI"
    )


def unknown_attempt(attempt_id: str) -> UsageError:
    return UsageError(f"attempt {attempt_id}: not in this store; check the id and the tracking URI")


def no_sign_of_life(older_than_s: float) -> str:
    """Why a stale attempt was closed, for people."""
    return f"no sign of life for more than {older_than_s / 3600:.3g} h; its driver is gone and nobody resumed it"
