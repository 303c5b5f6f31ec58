"""Whether the files of a run are there and are what was kept, as far as its record tells. Part of `mlflow_doctor.py`.

Sizes come with the list of files, so that of a sound run no file is read but the header of its weights, and of a
winner, whose model knows their SHA-256, the weights.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import BinaryIO

import yaml
from mlflow import MlflowClient
from mlflow.entities import Run

from vsetune.files.hashes import sha256_of_stream
from vsetune.files.weights_header import safetensors_flaw
from vsetune.object_storage.s3 import open_object
from vsetune.tracking import encoding
from vsetune.tracking.artifact_place import local_folder
from vsetune.tracking.artifacts import download, draw_curves, files_in_reach
from vsetune.tracking.doctor import Finding, WeightsOf
from vsetune.tracking.models import WEIGHTS_SHA256
from vsetune.tracking.plots import curves_picture
from vsetune.tracking.records import AttemptRecord, was_cut_short

_STUDY_FILE, _CONFIG_FILE, _WEIGHTS, _CURVES = "study.yaml", "config.yaml", "best.safetensors", "curves.svg"
_AMONG = "is not among its artifacts"
_MODELS_AT_ONCE = 50


class KeptFiles:
    """Of a store behind a URI."""

    def __init__(self, client: MlflowClient, uri: str) -> None:
        self._client, self._uri = client, uri
        self._sha256_of = cache(partial(_sha256_of_models, client))

    def of_study(self, where: str, run: Run) -> Iterator[Finding]:
        sizes = self._sizes(run)
        if sizes is not None:
            config = encoding.to_yaml(encoding.study_from_tags(run.data.tags).config)
            yield from self._of_text(where, run, sizes, _STUDY_FILE, config)

    def of_attempt(self, where: str, run: Run, record: AttemptRecord, weights: WeightsOf) -> Iterator[Finding]:
        """weights: where those of its trial lie outside the store."""
        sizes = self._sizes(run)
        if sizes is None:
            return
        yield from self._of_text(where, run, sizes, _CONFIG_FILE, encoding.to_yaml(record.start.resolved))
        yield from self._of_weights(where, run, sizes, record, weights)
        yield from self._of_curves(where, run, sizes, record)

    def _of_text(
        self, where: str, run: Run, sizes: Mapping[str, int | None], name: str, wanted: str
    ) -> Iterator[Finding]:
        what = None if name in sizes else f"{name} {_AMONG}"
        if what is None and sizes[name] != len(wanted.encode()) and not _says(self._text(run, name), wanted):
            what = f"{name} is not what was recorded"
        if what is not None:
            yield Finding(where, what, "writes it from the record",
                          partial(self._client.log_text, run.info.run_id, wanted, name))

    def _of_weights(
        self, where: str, run: Run, sizes: Mapping[str, int | None], record: AttemptRecord, weights: WeightsOf
    ) -> Iterator[Finding]:
        known: frozenset[str] = frozenset()
        if _WEIGHTS in sizes:
            with self._opened(run, _WEIGHTS) as (stream, size):
                flaw = safetensors_flaw(stream, size)
            if flaw is None:  # else a model may have been logged with what is damaged
                known = self._sha256_of(run.info.experiment_id).get(run.info.run_id, known)
                if not known or self._sha256(run, _WEIGHTS) in known:
                    return
                flaw = "its SHA-256 is not the one that its model was logged with"
            what = f"{_WEIGHTS} is damaged ({flaw})"
        elif record.status == "finished" and not was_cut_short(record.status, record.error):
            what = f"{_WEIGHTS} {_AMONG}"
        else:
            return
        kept = weights(record.start)
        if kept is not None and _is_sound(kept, known):
            yield Finding(where, what, f"copies {kept}", partial(self._client.log_artifact, run.info.run_id, str(kept)))
            return
        too = " nor in the folder of its trial"
        if kept or _WEIGHTS in sizes:
            too = f", and the one in the folder of its trial is {'damaged too' if kept else 'gone'}"
        yield Finding(where, f"{what}{too}", "bring the file back into the trial's folder, or train the trial again")

    def _of_curves(
        self, where: str, run: Run, sizes: Mapping[str, int | None], record: AttemptRecord
    ) -> Iterator[Finding]:
        points = encoding.points_from_tags(run.data.tags)
        if not points or record.status in ("running", "killed"):
            return
        what = None if _CURVES in sizes else f"{_CURVES} {_AMONG}"
        if what is None and sizes[_CURVES] != len(curves_picture(points).encode()):
            if not self._text(run, _CURVES).rstrip().endswith("</svg>"):  # that of an earlier version may differ
                what = f"{_CURVES} is cut short"
        if what is not None:
            yield Finding(where, what, "draws it again", partial(draw_curves, self._client, run.info.run_id, points))

    def _sizes(self, run: Run) -> dict[str, int | None] | None:
        """By name; None where a server keeps them and this is its database: examine the server for its files."""
        if not files_in_reach(self._uri, run):
            return None
        return {found.path: found.file_size for found in self._client.list_artifacts(run.info.run_id)}

    def _text(self, run: Run, name: str) -> str:
        with self._opened(run, name) as (stream, _):
            return stream.read().decode(errors="replace")

    def _sha256(self, run: Run, name: str) -> str:
        with self._opened(run, name) as (stream, _):
            return sha256_of_stream(stream)

    @contextmanager
    def _opened(self, run: Run, name: str) -> Iterator[tuple[BinaryIO, int]]:
        """(stream, bytes) of a file that the run has; what a server keeps is fetched whole."""
        place = str(run.info.artifact_uri).rstrip("/")
        folder = local_folder(place)
        if place.startswith("s3://"):
            stream, size = open_object(f"{place}/{name}")
            with stream:
                yield stream, size
            return
        with tempfile.TemporaryDirectory() as into:
            file = folder / name if folder else download(self._client, run.info.run_id, name, Path(into))
            with file.open("rb") as stream:
                yield stream, os.fstat(stream.fileno()).st_size


def _says(text: str, wanted: str) -> bool:
    """The same settings, however an earlier version has written them."""
    try:
        return bool(yaml.safe_load(io.StringIO(text)) == yaml.safe_load(wanted))
    except yaml.YAMLError:
        return False


def _is_sound(weights: Path, known: frozenset[str]) -> bool:
    with weights.open("rb") as stream:
        if safetensors_flaw(stream, os.fstat(stream.fileno()).st_size) is not None:
            return False
        stream.seek(0)
        return not known or sha256_of_stream(stream) in known


def _sha256_of_models(client: MlflowClient, experiment_id: str) -> dict[str, frozenset[str]]:
    """Of the weights with which models of an experiment were logged, by the id of their run."""
    found: dict[str, frozenset[str]] = {}
    token: str | None = None
    while token != "":
        page = client.search_logged_models([experiment_id], max_results=_MODELS_AT_ONCE, page_token=token)
        for model in page:
            run_id, sha256 = model.source_run_id, model.tags.get(WEIGHTS_SHA256)
            if run_id and sha256 and str(model.status) == "READY":
                found[run_id] = found.get(run_id, frozenset()) | {sha256}
        token = page.token or ""
    return found
