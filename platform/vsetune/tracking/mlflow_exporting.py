"""Writes a study of an MLflow store, run by run, into an export (`exported_study.py`)."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from mlflow.entities import Experiment, LifecycleStage, Run

from vsetune.errors import UsageError
from vsetune.tracking import encoding
from vsetune.tracking.artifacts import download, files_in_reach
from vsetune.tracking.exported_content import SEARCH_FILE, artifact_file, run_file
from vsetune.tracking.exported_study import StudyWriter
from vsetune.tracking.mlflow_errors import in_one_line
from vsetune.tracking.mlflow_opening import client_of
from vsetune.tracking.mlflow_runs import runs_in
from vsetune.tracking.moving import Exported, StudyExporter
from vsetune.tracking.store import unknown_study

_MINE = f"tags.`{encoding.KIND}` = 'study'"


class MlflowExporter(StudyExporter):
    """Reads through MLflow's client alone, so any store will do. Made by `moving.exporter`."""

    def __init__(self, uri: str, *, shown_uri: str) -> None:
        self._uri, self._shown_uri = uri, shown_uri
        with self._reading("open"):
            self._client = client_of(uri)

    def export(
        self, study: str, writer: StudyWriter, *, search: Path | None, on_run: Callable[[str], None]
    ) -> Exported:
        with self._reading(f"export study {study}"):
            experiment = self._experiment(study)
            found = runs_in(self._client, [experiment.experiment_id])
            runs = sorted(found, key=lambda run: (run.info.start_time, run.info.run_id))
            bare = []
            self._require_files_in_reach(runs)
            for run in runs:
                on_run(run.info.run_name or run.info.run_id)
                if not self._write(run, writer) and encoding.KIND in run.data.tags:
                    bare.append(run.info.run_name or run.info.run_id)
        if search is not None:
            writer.add_file(SEARCH_FILE, search)
        writer.finish({
            "study": study, "fingerprint": experiment.tags[encoding.FINGERPRINT], "from": self._shown_uri,
            "experiment_tags": dict(experiment.tags), "runs": [run.info.run_id for run in runs],
        })
        states = [run.data.tags.get(encoding.STATUS) for run in runs if run.data.tags.get(encoding.KIND) == "attempt"]
        return Exported(len(runs), states.count("running"), bare)

    def _require_files_in_reach(self, runs: Sequence[Run]) -> None:
        behind = [run for run in runs if not files_in_reach(self._uri, run)]
        if behind:
            raise UsageError(
                f"tracking store {self._shown_uri}: artifacts of {len(behind)} runs are kept by an MLflow server in "
                "front of this database; name the server, --tracking-uri http://..."
            )

    def _write(self, run: Run, writer: StudyWriter) -> bool:
        """Whether the run has artifacts."""
        artifacts = []
        with tempfile.TemporaryDirectory() as folder:
            for path in self._files(run.info.run_id):
                name = artifact_file(run.info.run_id, path)
                writer.add_file(name, download(self._client, run.info.run_id, path, Path(folder)))
                artifacts.append({"path": path, **writer.facts(name)})
        writer.add_json(run_file(run.info.run_id), {**self._plain(run), "artifacts": artifacts})
        return bool(artifacts)

    def _plain(self, run: Run) -> dict[str, Any]:
        info = run.info
        return {
            "run": info.run_id, "name": info.run_name, "started_ms": info.start_time, "ended_ms": info.end_time,
            "status": info.status, "params": dict(run.data.params), "tags": dict(run.data.tags),
            "data_sets": [_plain_data_set(each) for each in (run.inputs.dataset_inputs if run.inputs else [])],
            "metrics": {name: self._series(info.run_id, name) for name in sorted(run.data.metrics)},
        }

    def _series(self, run_id: str, name: str) -> list[list[Any]]:
        """[step, time stamp in milliseconds, value] of every number of a metric."""
        history = self._client.get_metric_history(run_id, name)
        return [[each.step, each.timestamp, _plain_number(each.value)] for each in history]

    def _files(self, run_id: str, folder: str | None = None) -> Iterator[str]:
        for found in self._client.list_artifacts(run_id, folder):
            if found.is_dir:
                yield from self._files(run_id, found.path)
            else:
                yield found.path

    def _experiment(self, study: str) -> Experiment:
        found = self._client.get_experiment_by_name(study)
        is_ours = found is not None and found.tags.get(encoding.KIND) == "study"
        if found is None or not is_ours or found.lifecycle_stage != LifecycleStage.ACTIVE:
            known = self._client.search_experiments(filter_string=_MINE)
            raise unknown_study(study, [each.name for each in known])
        return found

    def _reading(self, doing: str) -> AbstractContextManager[None]:
        return in_one_line(f"tracking store {self._shown_uri}: cannot {doing}", then="repeat")


def _plain_data_set(given: Any) -> dict[str, Any]:
    data = given.dataset
    return {
        "name": data.name, "digest": data.digest, "source_type": data.source_type, "source": data.source,
        "schema": data.schema, "profile": data.profile, "tags": {tag.key: tag.value for tag in given.tags or []},
    }


def _plain_number(value: float) -> float | str:
    """JSON has no word for the others."""
    return value if math.isfinite(value) else str(value)
