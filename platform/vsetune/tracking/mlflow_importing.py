"""Brings an exported study into an MLflow store, so that an import that was interrupted can be repeated.

The order is what makes that safe. A run is created with the id that it had (`vsetune.moved_from`) and nothing that
makes it ours; then come its numbers and files; then the tags, which claim that those are there; at last a note of what
was brought (`vsetune.moved`). The run of the study and its experiment get their tags when all others are done: before
that no command takes the half of a study for a study.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, LifecycleStage, Metric, Run

from vsetune.errors import StorageError, StudyConflict
from vsetune.files.hashes import fingerprint_of
from vsetune.tracking import encoding
from vsetune.tracking.artifact_place import require_own_place
from vsetune.tracking.exported_content import PARENT_TAG, ExportedDataSet, ExportedRun, artifact_file
from vsetune.tracking.exported_study import ExportedStudy
from vsetune.tracking.mlflow_batches import log_in_batches
from vsetune.tracking.mlflow_errors import in_one_line
from vsetune.tracking.mlflow_opening import client_of
from vsetune.tracking.mlflow_runs import runs_in
from vsetune.tracking.moving import Imported, StudyImporter
from vsetune.tracking.store import require_free_name

MOVED_FROM, MOVED, MOVING = "vsetune.moved_from", "vsetune.moved", "vsetune.moving"
_OF_THE_MOVE = {MOVED_FROM, MOVED, PARENT_TAG}
_PLACES = ("folder", "uri")
"""Settings of `tracking` that name places."""
_GO_ON = "repeat: the import goes on where it stopped"


class MlflowImporter(StudyImporter):
    """Writes through MLflow's client alone, so any store will do. Made by `moving.importer`."""

    def __init__(self, uri: str, artifact_root: str | None, *, shown_uri: str) -> None:
        self._uri, self._shown_uri = uri, shown_uri
        self._artifact_root = artifact_root.rstrip("/") if artifact_root else None
        with self._storing("open"):
            self._client = client_of(uri)

    def bring(self, exported: ExportedStudy, *, on_run: Callable[[str], None]) -> Imported:
        with self._storing(f"import study {exported.study}"):
            experiment_id = self._experiment(exported)
            place = _Place(self._client, exported, experiment_id, list(runs_in(self._client, [experiment_id])))
            place.require_ours()
            if place.takes_files:
                require_own_place(self._uri, exported.study)
            for run_id in place.parents_first():
                on_run(place.name(run_id))
                place.bring(run_id)
            place.finish()
        return place.counts()

    def _experiment(self, exported: ExportedStudy) -> str:
        found = self._client.get_experiment_by_name(exported.study)
        if found is None:
            location = f"{self._artifact_root}/{exported.study}" if self._artifact_root else None
            tags = {MOVING: exported.fingerprint, "mlflow.experimentKind": "custom_model_development"}
            return str(self._client.create_experiment(exported.study, artifact_location=location, tags=tags))
        known = found.tags.get(encoding.FINGERPRINT, found.tags.get(MOVING))
        is_ours = found.tags.get(encoding.KIND) == "study" or MOVING in found.tags
        is_deleted = found.lifecycle_stage != LifecycleStage.ACTIVE
        require_free_name(exported.study, found.experiment_id, is_deleted=is_deleted, is_ours=is_ours)
        if known != exported.fingerprint:
            raise StudyConflict(
                f"study {exported.study}: stands for another configuration here (fingerprint {known}, the export has "
                f"{exported.fingerprint}); import into another store, or rename the experiment"
            )
        return str(found.experiment_id)

    def _storing(self, doing: str) -> AbstractContextManager[None]:
        return in_one_line(f"tracking store {self._shown_uri}: cannot {doing}", then=_GO_ON)


class _Place:
    """The experiment that takes the runs of one export. known: its runs before."""

    def __init__(
        self, client: MlflowClient, exported: ExportedStudy, experiment_id: str, known: Sequence[Run]
    ) -> None:
        self._client, self._exported, self._experiment_id = client, exported, experiment_id
        self._known = known
        self._originals = {run.info.run_id for run in known} & set(exported.run_ids)
        self._moved = {run.data.tags[MOVED_FROM]: run for run in known if MOVED_FROM in run.data.tags}
        self._plain = {
            run_id: exported.run(run_id).model_copy(update={"metrics": {}}) for run_id in exported.run_ids
        }
        self._ids = {run_id: run_id for run_id in self._originals}
        self._last_tags: dict[str, dict[str, str]] = {}
        self._new = self._completed = self._there = 0

    def require_ours(self) -> None:
        """StudyConflict where the study has a run or an attempt here that came from nowhere else."""
        brought = {*self._originals, *(run.info.run_id for run in self._moved.values())}
        exported = {_identity(plain.tags) for plain in self._plain.values()} - {None}
        for run in self._known:
            if run.info.run_id not in brought and _identity(run.data.tags) in exported:
                raise StudyConflict(
                    f"study {self._exported.study}: run {run.info.run_id} ({run.info.run_name}) was recorded here and "
                    "is in the export too; import into another store, or delete this experiment first"
                )

    @property
    def takes_files(self) -> bool:
        """It is another store than the one that the study was exported from."""
        return not self._originals.issuperset(self._exported.run_ids)

    def parents_first(self) -> Iterator[str]:
        """The runs to bring, each after the one in which it is nested."""
        seen = set(self._originals)
        for run_id in self._exported.run_ids:
            line = []
            while run_id in self._plain and run_id not in seen:
                seen.add(run_id)
                line.append(run_id)
                run_id = self._plain[run_id].tags.get(PARENT_TAG, "")
            yield from reversed(line)
        self._there += len(self._originals)

    def name(self, run_id: str) -> str:
        """For people."""
        return self._plain[run_id].name or run_id

    def bring(self, run_id: str) -> None:
        """One run with its numbers, files and tags; nothing where it is here as it was exported."""
        plain, content = self._plain[run_id], self._exported.content_of(run_id)
        here = self._moved.get(run_id)
        if here is not None:
            self._ids[run_id] = here.info.run_id
            note = json.loads(here.data.tags.get(MOVED, "{}"))
            if note.get("content") == content:
                self._there += 1
                return
            if note and note["tags"] != _state(here.data.tags):
                raise StudyConflict(
                    f"study {self._exported.study}: run {here.info.run_id} ({self.name(run_id)}) has changed here "
                    "since it was imported, and the export has another state of it; keep one of the two, or import "
                    "into another store"
                )
            self._completed += 1
        else:
            self._ids[run_id] = self._create(plain, run_id)
            self._new += 1
        self._fill(self._ids[run_id], run_id, plain)
        tags = _of_this_home(plain.tags)
        if tags.get(encoding.KIND) == "study":
            self._last_tags[run_id] = tags
        else:
            self._end(run_id, tags)

    def finish(self) -> None:
        """What makes a study of it. The experiment last."""
        for run_id, tags in self._last_tags.items():
            self._end(run_id, tags)
        if not self._originals:
            for name, text in self._exported.experiment_tags.items():
                self._client.set_experiment_tag(self._experiment_id, name, text)

    def counts(self) -> Imported:
        return Imported(self._new, self._completed, self._there)

    def _create(self, plain: ExportedRun, run_id: str) -> str:
        tags = {MOVED_FROM: run_id}
        parent = self._ids.get(plain.tags.get(PARENT_TAG, ""))
        if parent is not None:
            tags[PARENT_TAG] = parent
        made = self._client.create_run(
            self._experiment_id, start_time=plain.started_ms, tags=tags, run_name=plain.name
        )
        self._require_alone(str(made.info.run_id), run_id)
        return str(made.info.run_id)

    def _require_alone(self, made: str, run_id: str) -> None:
        """StudyConflict where another import has made the run too: of two at once the later one sees both."""
        same = runs_in(self._client, [self._experiment_id], f"tags.`{MOVED_FROM}` = '{run_id}'")
        if any(run.info.run_id != made for run in same):
            self._client.delete_run(made)
            raise StudyConflict(
                f"study {self._exported.study}: another import of it brings the same run ({self.name(run_id)}) at this "
                "moment; wait until it has ended, then repeat"
            )

    def _fill(self, here: str, run_id: str, plain: ExportedRun) -> None:
        metrics = [
            Metric(name, float(value), stamp, step)
            for name, series in self._exported.run(run_id).metrics.items() for step, stamp, value in series
        ]
        log_in_batches(self._client, here, metrics=metrics, params=plain.params)
        if plain.data_sets:
            self._client.log_inputs(here, datasets=[_data_set(each) for each in plain.data_sets])
        for path in self._exported.artifacts(run_id):
            folder = str(PurePosixPath(path).parent)
            with tempfile.TemporaryDirectory() as into:
                file = self._exported.extract(artifact_file(run_id, path), Path(into))
                self._client.log_artifact(here, str(file), None if folder == "." else folder)
        self._require_arrived(here, run_id)

    def _require_arrived(self, here: str, run_id: str) -> None:
        """StorageError for a file that the store took and does not have, or not whole."""
        wanted = {path: self._exported.size_of(artifact_file(run_id, path)) for path in
                  self._exported.artifacts(run_id)}
        for folder in sorted({str(PurePosixPath(path).parent) for path in wanted}):
            for found in self._client.list_artifacts(here, None if folder == "." else folder):
                if wanted.get(found.path) in (found.file_size, None) or found.file_size is None:
                    wanted.pop(found.path, None)
        if wanted:
            raise StorageError(
                f"run {here}: {min(wanted)} did not arrive whole; check the place of the store's artifacts, then "
                "repeat: the import goes on where it stopped"
            )

    def _end(self, run_id: str, tags: Mapping[str, str]) -> None:
        here, plain = self._ids[run_id], self._plain[run_id]
        log_in_batches(self._client, here, tags=tags)
        if plain.status in ("FINISHED", "FAILED", "KILLED"):
            self._client.set_terminated(here, plain.status, end_time=plain.ended_ms)
        note = {"content": self._exported.content_of(run_id), "tags": _state(self._client.get_run(here).data.tags)}
        self._client.set_tag(here, MOVED, json.dumps(note))


def _identity(tags: Mapping[str, str]) -> str | None:
    """What there can be once in a study."""
    return tags.get(encoding.KEY) or ("study" if tags.get(encoding.KIND) == "study" else None)


def _state(tags: Mapping[str, str]) -> str:
    """A hash that tells whether somebody has written to a run."""
    return fingerprint_of({name: text for name, text in sorted(tags.items()) if name not in _OF_THE_MOVE})


def _of_this_home(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags as they are stored here. Where a study keeps its files says the home that receives it, not its sender."""
    found = {name: text for name, text in tags.items() if name not in _OF_THE_MOVE}
    if tags.get(encoding.KIND) != "study":
        return found
    record = encoding.study_from_tags(tags)
    tracking = {key: value for key, value in (record.config.get("tracking") or {}).items() if key not in _PLACES}
    config = {**record.config, "tracking": tracking} if "tracking" in record.config else record.config
    pieces = encoding.in_pieces(encoding.RECORD, encoding.to_json(asdict(replace(record, config=config))))
    return found | pieces


def _data_set(plain: ExportedDataSet) -> DatasetInput:
    tags = [InputTag(key, value) for key, value in plain.tags.items()]
    data = Dataset(plain.name, plain.digest, plain.source_type, plain.source, plain.schema_, plain.profile)
    return DatasetInput(data, tags=tags)
