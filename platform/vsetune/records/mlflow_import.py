"""Restores a study from MLflow alone: its log is among the files of its run.

Studies that version 0.2 recorded have no log. Their attempts are read from the tags that it wrote, and a log is made of
them; this part can be deleted once no such stores are in use.
"""

from __future__ import annotations

import base64
import itertools
import json
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast, get_args

from mlflow import MlflowClient
from mlflow.entities import Experiment, Run

from vsetune.errors import DataError, UsageError, one_line
from vsetune.records import messages
from vsetune.records.events import (
    AttemptStart,
    AttemptStatus,
    Begun,
    Closed,
    Ended,
    Event,
    Opened,
    StudyRecord,
    StudyStatus,
    Validated,
    ValidationPoint,
    attempt_id,
    is_inside,
)
from vsetune.records.log import LOG_FILE, LogWriter, lines_of
from vsetune.records.mlflow_client import KIND, LOG, PIECE, STUDY, in_one_line, open_client, runs_of
from vsetune.records.mlflow_export import log_id
from vsetune.records.moved_study import FILES, FORMAT, HEADER, import_study
from vsetune.records.studies import folder_of_study
from vsetune.storage.addresses import shown_url
from vsetune.storage.hashes import sha256_of_file
from vsetune.storage.whole_files import write_json

_WEIGHTS, _RECORD = "best.safetensors", "vsetune.record"
_MOST_UNPACKED = 1 << 24


def bring_study(study: str, uri: str) -> tuple[str, int]:
    """Import a study from MLflow; returns as `import_study`. UsageError if MLflow has no such study; StorageError when
    it does not answer."""
    client = open_client(uri)
    with in_one_line(uri, f"read study {study}"):
        experiment = _experiment(client, study, shown_url(uri))
        runs = list(runs_of(client, experiment.experiment_id))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / FILES
            folder.mkdir()
            parent = next((run for run in runs if run.data.tags.get(KIND) == "study"), None)
            if parent is None:
                raise DataError(messages.STUDY_RUN_MISSING(study=study, store=shown_url(uri)))
            if any(each.path == LOG_FILE for each in client.list_artifacts(parent.info.run_id)):
                client.download_artifacts(parent.info.run_id, LOG_FILE, str(folder))
            elif _RECORD in parent.data.tags:
                _write_log(folder, parent, [run for run in runs if run.data.tags.get(KIND) == "attempt"])
            else:
                raise DataError(
                    "VSE-R462", "study {study}: {store} has no log of it, since no driver has left it in order; put "
                    "back a copy of the study's folder", study=study, store=shown_url(uri),
                )
            for run in runs:
                _bring_weights(client, run, folder)
            _finish(Path(name), experiment.tags.get(STUDY, study))
            return import_study(Path(name))


def _experiment(client: MlflowClient, study: str, store: str) -> Experiment:
    """The experiment of a study, by the study's name, its own name or its number. Of several logs of one name that of
    this home, if there is one. UsageError if there is none, or no way to tell."""
    found = {each.name: each for each in client.search_experiments(filter_string=f"tags.`{STUDY}` = '{study}'")}
    named = client.get_experiment_by_name(study)
    if named is None and not found and study.isdigit():
        named = client.get_experiment(study)
    if named is not None and named.tags.get(KIND) == "study":
        found[named.name] = named
    first = next(lines_of(folder_of_study(study) / LOG_FILE), None)
    opened = None if first is None or first.kind != "opened" else first.event()
    own = log_id(opened) if isinstance(opened, Opened) else None
    ours = [each for each in found.values() if each.tags.get(LOG) == own] or [*found.values()]
    if not ours:
        raise UsageError(messages.NOT_IN_STORE(study=study, store=store))
    if len(ours) > 1:
        listed = ", ".join(f"{each.name} ({each.experiment_id})" for each in ours)
        raise UsageError(
            "VSE-R463", "study {study}: {store} has it from several homes, in the experiments {listed}; name "
            "one by its number", study=study, store=store, listed=listed,
        )
    return ours[0]


def _bring_weights(client: MlflowClient, run: Run, folder: Path) -> None:
    trial = run.data.tags.get("trial")
    if trial is None or run.data.tags.get("status") not in ("finished", "pruned"):
        return
    if not is_inside(trial) or "/" in trial:
        raise DataError(messages.TRIAL_NAME(run=run.info.run_id, got=one_line(trial)))
    if any(each.path == _WEIGHTS for each in client.list_artifacts(run.info.run_id)):
        place = folder / "trials" / trial
        place.mkdir(parents=True, exist_ok=True)
        client.download_artifacts(run.info.run_id, _WEIGHTS, str(place))


def _finish(export: Path, study: str) -> None:
    """Write the header that makes a folder of files an export."""
    files = {
        path.relative_to(export / FILES).as_posix(): {"size": path.stat().st_size, "sha256": sha256_of_file(path)}
        for path in sorted((export / FILES).rglob("*")) if path.is_file()
    }
    write_json(export / HEADER, {"format": FORMAT, "study": study, "files": files}, durable=False)


def _write_log(folder: Path, parent: Run, runs: list[Run]) -> None:
    """Write the log that version 0.2 would have written, as far as its tags allow: only configurations of attempts are
    known."""
    with _decoding(parent):
        record = StudyRecord(**json.loads(_joined(_RECORD, parent.data.tags) or "{}"))
    log = LogWriter(folder)
    try:
        log.append(Opened(record, parent.info.start_time / 1000))
        for run in runs:
            with _decoding(run):
                events = list(_events_of(run))
            for event in events:
                log.append(event)
        status = parent.data.tags.get("status")
        if status in get_args(StudyStatus):
            log.append(Closed(cast(StudyStatus, status), (), (parent.info.end_time or parent.info.start_time) / 1000))
        log.settle()
    finally:
        log.close()


@contextmanager
def _decoding(run: Run) -> Iterator[None]:
    """Turn exceptions from decoding a run's tags into a DataError that names the run."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, zlib.error) as error:
        raise DataError(messages.TAGS_DAMAGED(run=run.info.run_id, reason=one_line(error))) from error


def _events_of(run: Run) -> Iterator[Event]:
    tags, began = run.data.tags, run.info.start_time / 1000
    text = _joined(_RECORD, tags) or "{}"
    start = AttemptStart(**(json.loads(text) if text.startswith("{") else _unpacked(text)))
    name = attempt_id(start)
    yield Begun(start, began)
    points = {point.step: point for block in _blocks(tags) for point in _points_of(block)}
    if points:
        yield Validated(name, tuple(points[step] for step in sorted(points)), began)
    status = cast(AttemptStatus, tags.get("status"))
    if status in get_args(AttemptStatus) and status != "running":
        summary = json.loads(_joined("vsetune.summary", tags) or "{}")
        files = (f"trials/{start.trial}/{_WEIGHTS}",) if status in ("finished", "pruned") else ()
        yield Ended(name, status, summary, files, tags.get("error") or None, (run.info.end_time or 0) / 1000 or began)


def _blocks(tags: Mapping[str, str]) -> Iterator[str]:
    for number in itertools.count():
        text = _joined(f"vsetune.points.{number}", tags)
        if text is None:
            return
        yield text


def _points_of(block: str) -> list[ValidationPoint]:
    """A block is `1 CURVE NUMBERS`: columns of fields, and all other numbers by name."""
    layout, curve, numbers = block.split(" ")
    if layout != "1":
        raise ValueError(f"points in format {layout[:10]!r}")
    pairs_seen, columns = _unpacked(numbers)
    found = []
    for place, fields in enumerate(zip(*_unpacked(curve), strict=True)):
        step, epoch, m_recall, train_seconds, device_seconds = fields
        metrics = {name: column[place] for name, column in columns.items() if column[place] is not None}
        metrics |= {} if device_seconds is None else {"device_seconds": device_seconds}
        found.append(ValidationPoint(step, epoch, pairs_seen[place], m_recall, train_seconds, metrics))
    return found


def _joined(name: str, tags: Mapping[str, str]) -> str | None:
    """A text that was cut into pieces `NAME`, `NAME.1`, ... of 5,000 characters, the last one shorter."""
    if name not in tags:
        return None
    pieces = [tags[name]]
    while len(pieces[-1]) == PIECE and f"{name}.{len(pieces)}" in tags:
        pieces.append(tags[f"{name}.{len(pieces)}"])
    return "".join(pieces)


def _unpacked(text: str) -> Any:
    unpacking = zlib.decompressobj()
    content = unpacking.decompress(base64.b64decode(text), _MOST_UNPACKED)
    if unpacking.unconsumed_tail:
        raise ValueError(f"unpacks to more than {_MOST_UNPACKED:,} bytes")
    return json.loads(content)
