"""Reads studies and attempts out of MLflow's tables. Knows neither MLflow nor how its database is reached.

MLflow's own search makes an object of every tag, parameter and newest number of a run, most of them for people. Here
only the tags are read that say what an attempt was, a few hundred runs at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from vsetune.tracking import encoding
from vsetune.tracking.point_blocks import POINTS
from vsetune.tracking.records import AttemptRecord, StudyRecord
from vsetune.tracking.store import unknown_study

Ask = Callable[[str, Mapping[str, Any]], Iterable[Sequence[Any]]]
"""Puts a question in SQL, with `:name` for what it is given, and returns the rows."""

NEEDED = {
    "experiments": {"experiment_id", "name", "lifecycle_stage"},
    "runs": {"run_uuid", "experiment_id", "start_time", "end_time", "name", "lifecycle_stage"},
    "tags": {"run_uuid", "key", "value"},
}
"""Tables of MLflow and their columns that are read here."""
_OF_A_STUDY = f"""
    SELECT runs.start_time, runs.run_uuid, runs.experiment_id, tags.key, tags.value
    FROM runs JOIN experiments ON experiments.experiment_id = runs.experiment_id
        JOIN tags AS kind ON kind.run_uuid = runs.run_uuid AND kind.key = '{encoding.KIND}' AND kind.value = 'study'
        JOIN tags ON tags.run_uuid = runs.run_uuid AND tags.key LIKE '{encoding.RECORD}%'
    WHERE runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active'
"""
_OF_ATTEMPTS = f"""
    SELECT runs.start_time, runs.name, runs.run_uuid, runs.end_time, status.value, seen.value
    FROM runs JOIN tags AS kind ON kind.run_uuid = runs.run_uuid AND kind.key = '{encoding.KIND}'
            AND kind.value = 'attempt'
        LEFT JOIN tags AS status ON status.run_uuid = runs.run_uuid AND status.key = '{encoding.STATUS}'
        LEFT JOIN tags AS seen ON seen.run_uuid = runs.run_uuid AND seen.key = '{encoding.SEEN}'
    WHERE runs.experiment_id = :experiment AND runs.lifecycle_stage = 'active'
"""
_PREFIXES = (encoding.RECORD, encoding.CURVE, encoding.SUMMARY, POINTS)
_AT_ONCE = 500


class ReadRun(NamedTuple):
    """A run that may be an attempt. status, seen, ended_ms: whatever is written of an attempt changes one of them."""

    started_ms: int
    name: str
    run_id: str
    ended_ms: int | None
    status: str
    seen: str


class AttemptRows:
    """Of one database. connected: a connection for one call. Errors are those of what reaches the database.

    Remembers the attempts of the experiment that was read last, and reads again those that have changed since.
    """

    def __init__(self, connected: Callable[[], AbstractContextManager[Ask]]) -> None:
        self._connected = connected
        self._experiment = ""
        self._known: dict[ReadRun, AttemptRecord] = {}

    def studies(self) -> list[StudyRecord]:
        """Oldest first."""
        return [record for record, _ in self._studies()]

    def of_study(self, study: str) -> list[AttemptRecord]:
        """As `of`, of a study by its name. UsageError for an unknown one."""
        places = {record.name: experiment_id for record, experiment_id in self._studies()}
        if study not in places:
            raise unknown_study(study, list(places))
        return self.of(places[study])

    def of(self, experiment_id: str) -> list[AttemptRecord]:
        """The attempts of an experiment in the order they started, with equal parts shared among them."""
        known = self._known if self._experiment == experiment_id else {}
        decoding = encoding.Decoding()
        with self._connected() as ask:
            runs = sorted(_runs(ask, experiment_id), key=lambda run: run[:3])
            new = [run for run in runs if run not in known]
            read = {run: decoding.attempt(run.run_id, tags) for run, tags in _with_tags(ask, new)}
        self._known = {run: known.get(run) or read[run] for run in runs}
        self._experiment = experiment_id
        return list(self._known.values())

    def _studies(self) -> list[tuple[StudyRecord, str]]:
        """Each with the id of its experiment."""
        found: dict[tuple[int, str], dict[str, str]] = {}
        places: dict[tuple[int, str], str] = {}
        with self._connected() as ask:
            for started_ms, run_id, experiment_id, key, text in ask(_OF_A_STUDY, {}):
                found.setdefault((started_ms, run_id), {})[key] = text or ""
                places[started_ms, run_id] = str(experiment_id)
        return [(encoding.study_from_tags(found[run]), places[run]) for run in sorted(found)]


def _runs(ask: Ask, experiment_id: str) -> Iterator[ReadRun]:
    """What changes with an attempt is read before its tags: what comes between the two is read again next time."""
    for started_ms, name, run_id, ended_ms, status, seen in ask(_OF_ATTEMPTS, {"experiment": int(experiment_id)}):
        yield ReadRun(started_ms, name or "", run_id, ended_ms, status or "", seen or "")


def _with_tags(ask: Ask, runs: Sequence[ReadRun]) -> Iterator[tuple[ReadRun, dict[str, str]]]:
    """Each with the tags of which an attempt is made."""
    prefixes = " OR ".join(f"tags.key LIKE '{name}%'" for name in _PREFIXES)
    for at in range(0, len(runs), _AT_ONCE):
        part = runs[at : at + _AT_ONCE]
        tags: dict[str, dict[str, str]] = {run.run_id: {} for run in part}
        given = {f"run{place}": run_id for place, run_id in enumerate(tags)}
        asked = (
            "SELECT tags.run_uuid, tags.key, tags.value FROM tags "
            f"WHERE tags.run_uuid IN ({', '.join(f':{name}' for name in given)}) "
            f"AND (tags.key IN ('{encoding.STATUS}', '{encoding.ERROR}') OR {prefixes})"
        )
        for run_id, name, text in ask(asked, given):
            tags[run_id][name] = text or ""
        yield from ((run, tags[run.run_id]) for run in part)
