"""Restores a study from MLflow alone: its log is among the files of its run."""

from __future__ import annotations

import tempfile
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Experiment, Run

from vsetune.errors import DataError, UsageError, one_line
from vsetune.home.addresses import shown_url
from vsetune.home.hashes import sha256_of_file
from vsetune.home.whole_files import write_json
from vsetune.records.events import (
    Opened,
    is_inside,
)
from vsetune.records.log import LOG_FILE, lines_of
from vsetune.records.mlflow_client import KIND, LOG, STUDY, in_one_line, open_client, runs_of
from vsetune.records.mlflow_export import log_id
from vsetune.records.moved_study import FILES, FORMAT, HEADER, import_study
from vsetune.records.studies import folder_of_study

_WEIGHTS = "best.safetensors"


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
                raise DataError(
                    "VSE-R036", "study {study}: has no run of its own in {store}", study=study, store=shown_url(uri)
                )
            if any(each.path == LOG_FILE for each in client.list_artifacts(parent.info.run_id)):
                client.download_artifacts(parent.info.run_id, LOG_FILE, str(folder))
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
        raise UsageError(
            "VSE-R035", "study {study}: is not in {store}; check the name and --tracking-uri", study=study, store=store
        )
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
        raise DataError(
            "VSE-R039", "run {run}: trial: got {got}, need the name of a trial", run=run.info.run_id,
            got=one_line(trial),
        )
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
