"""First stages of studies that re-rank: found among the recorded trials by name, stored in the home by content.

    first_stages/<content>/stage.json         settings of the trial, its data set, SHA-256 of its weights
    first_stages/<content>/best.safetensors   the weights

The driver stores a first stage when it prepares a study, and writes its content hash into the study's settings. Workers
and resumed studies find it by this hash, on object storage too if the home is there, and need no tracking store. Later
changes of the trial or its name do not affect the study (decision 0041).
"""

from __future__ import annotations

import io
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from vsetune.config.plugins import Plugin, known_plugins
from vsetune.config.spec.loading import parse_spec, read_yaml
from vsetune.config.study.evaluation_settings import RerankSpec
from vsetune.config.study.study_spec import StudySpec
from vsetune.config.study.training import TrialSpec
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import ConfigError, DataError, StorageError, UsageError
from vsetune.home.hashes import sha256_hex, sha256_of_file
from vsetune.home.home_files import find_in_home, keep_in_home
from vsetune.home.paths import home
from vsetune.home.whole_files import make_folder, read_json, whole_file
from vsetune.records.studies import BEST_FILE, Studies
from vsetune.study.kept_plugins import load_kept, study_folder_of
from vsetune.study.recorded import RecordedAttempt, find_attempt, require_best_weights
from vsetune.training.trained import KeptStage, require_embedding

STAGES_FOLDER, STUDY_FILE = "first_stages", "study.yaml"
_NOTE = "stage.json"


@dataclass(frozen=True)
class StageSearch:
    """Inputs of the search for a study's first stage. folder: of the study. open_store: opens the tracking store, where
    the trial is recorded; called only if the home does not have the first stage yet. where: the file to correct; every
    message begins with it."""

    spec: StudySpec
    dataset: Dataset
    folder: Path
    open_store: Callable[[], Studies]
    where: str

    @property
    def key(self) -> str:
        """File and setting, the beginning of messages."""
        return f"{self.where}: evaluation.rerank.first"


def with_first_stage(search: StageSearch) -> StudySpec:
    """The study with the content hash of its first stage in `evaluation.rerank`; unchanged if it does not re-rank.

    Stores the first stage in the home. A study that has begun continues with the first stage it began with.
    ConfigError: there is no such trial, none of its attempts has finished, it scores pairs, or it was trained on other
    data. StaleCheckpoint: its weights are gone. StorageError: store or home cannot be used.
    """
    wanted = search.spec.evaluation.rerank
    if wanted is None:
        return search.spec
    content = _begun_with(search, wanted)
    if content is None:
        store, attempt = _found(search, wanted)
        content = _keep(store, attempt)
        if wanted.content not in (None, content):
            raise ConfigError(
                "VSE-S021", "{where}: {first} is {got} now, the file says content {need}; bring those weights back, or "
                "remove content", where=search.key, first=wanted.first, got=content[:16], need=str(wanted.content)[:16],
            )
    rerank = wanted.model_copy(update={"content": content})
    return search.spec.model_copy(update={"evaluation": search.spec.evaluation.model_copy(update={"rerank": rerank})})


def check_first_stage(search: StageSearch) -> None:
    """Raises the same errors without storing the first stage."""
    wanted = search.spec.evaluation.rerank
    if wanted is not None and _begun_with(search, wanted) is None:
        _found(search, wanted)


def kept_stage(trial: TrialSpec, trial_folder: Path) -> KeptStage | None:
    """The first stage of a trial of a prepared study, for `TrainingAttempt`; None if the trial ranks every pair.

    trial_folder: `trials/<trial>` of its study, whose folder has the code of plugins. ConfigError if the study was not
    prepared. StorageError if the first stage is not in the home, or is damaged.
    """
    wanted = trial.evaluation.rerank
    if wanted is None:
        return None
    where = f"trial {trial.trial}: evaluation.rerank: {wanted.first}"
    if wanted.content is None:
        raise ConfigError(
            "VSE-S022", "{where}: content is missing, the study was not made ready; start it by `vsetune study run`",
            where=where,
        )
    stage = _read(wanted.content, study_folder_of(trial_folder), where=where)
    if stage is None:
        raise StorageError(
            "VSE-S023", "{where}: is not in {folder}; start the study again, which puts it there", where=where,
            folder=_folder(wanted.content),
        )
    return stage


def plugins_of_stage(spec: StudySpec, folder: Path) -> list[Plugin]:
    """The plugins of the first stage of a prepared study. folder: of the study."""
    wanted = spec.evaluation.rerank
    stage = None if wanted is None or wanted.content is None else _read(wanted.content, folder, where=spec.study)
    return [] if stage is None else [plugin for plugin in known_plugins() if plugin.key in stage.trial.plugins]


def _begun_with(search: StageSearch, wanted: RerankSpec) -> str | None:
    """The content hash that the file names or that the study has begun with, if the home has it; None otherwise.
    ConfigError if it does not fit the study."""
    content = wanted.content or _content_of_run(search.folder, wanted.first)
    stage = None if content is None else _read(content, search.folder, where=search.key)
    if stage is None:
        return None
    _check(search, stage.trial, stage.data_fingerprint, wanted.first)
    return content


def _content_of_run(folder: Path, first: str) -> str | None:
    """The content hash in the study file that a run has left in its folder, if it names the same first stage."""
    with tempfile.TemporaryDirectory() as into:
        find_in_home(folder / STUDY_FILE, into=Path(into))
        files = [place / STUDY_FILE for place in (Path(into), folder) if (place / STUDY_FILE).is_file()]
        plain: Any = read_yaml(files[0]) if files else {}
    evaluation = plain.get("evaluation")
    rerank = evaluation.get("rerank") if isinstance(evaluation, Mapping) else None
    if not isinstance(rerank, Mapping) or rerank.get("first") != first:
        return None
    content = rerank.get("content")
    return content if isinstance(content, str) else None


def _found(search: StageSearch, wanted: RerankSpec) -> tuple[Studies, RecordedAttempt]:
    try:
        store = search.open_store()
        attempt = find_attempt(store, wanted.first, finished=True)
        own = {plugin.key: plugin.sha256 for plugin in known_plugins()}
        for key, sha256 in attempt.record.start.resolved.get("plugins", {}).items():
            if own.get(key, sha256) != sha256:
                raise ConfigError(
                    "VSE-S024", "{where}: {first} is of other code of {plugin} than this study; use one version",
                    where=search.key, first=wanted.first, plugin=key,
                )
        trial = attempt.trial()
    except StorageError as error:
        raise StorageError(error.problem.at(search.key)) from error
    except UsageError as error:
        raise ConfigError(error.problem.at(search.key)) from error
    _check(search, trial, attempt.record.start.protocol.get("data_fingerprint"), wanted.first)
    return store, attempt


def _check(search: StageSearch, trial: TrialSpec, data_fingerprint: str | None, first: str) -> None:
    require_embedding(trial, where=f"{search.key}: {first}")
    dataset = search.dataset
    if data_fingerprint != dataset.fingerprint:
        raise ConfigError(
            "VSE-S025", "{where}: {first} was trained on other data ({path}, fingerprint {got}), {dataset} has {need}; "
            "need a first stage of the same data set", where=search.key, first=first, path=trial.data.path,
            got=data_fingerprint, dataset=dataset.path, need=dataset.fingerprint,
        )


def _keep(store: Studies, attempt: RecordedAttempt) -> str:
    """Copies settings and weights of an attempt into the home; returns their content hash."""
    start = attempt.record.start
    with tempfile.TemporaryDirectory() as into:
        weights = require_best_weights(store, attempt, Path(into))
        note = {
            "trial": attempt.trial().to_plain(), "weights": sha256_of_file(weights),
            "data_fingerprint": start.protocol.get("data_fingerprint"),
        }
        content = _content_of(note)
        with open(weights, "rb") as source:
            _write(_folder(content) / BEST_FILE, source)
    _write(_folder(content) / _NOTE, io.BytesIO(json.dumps(note).encode()))  # last: its readers find the weights
    return content


def _write(path: Path, source: IO[bytes]) -> None:
    """Writes a file into the home, remote or local. Several drivers may write it at once, with the same content."""
    make_folder(path.parent)
    try:
        with whole_file(path, durable=False, by_many=True) as stream:
            shutil.copyfileobj(source, stream)
    except OSError as error:
        raise StorageError(
            "VSE-S027", "{path}: cannot be written ({reason}); free space, then repeat the command", path=path,
            reason=error.strerror,
        ) from error
    keep_in_home(path)


def _read(content: str, study_folder: Path, *, where: str) -> KeptStage | None:
    """A stored first stage; None if the home has none with this content hash. StorageError if it is damaged."""
    folder = _folder(content)
    if not all(file.is_file() or find_in_home(file) for file in (folder / _NOTE, folder / BEST_FILE)):
        return None
    try:
        note: Any = read_json(folder / _NOTE)
        is_sound = _content_of(note) == content and sha256_of_file(folder / BEST_FILE) == note["weights"]
    except (DataError, OSError, TypeError, KeyError):
        is_sound = False
    if not is_sound:
        raise StorageError(
            "VSE-S026", "{where}: {folder}: differs from what was stored there; remove it, and start the study again",
            where=where, folder=folder,
        )
    load_kept(note["trial"].get("plugins", {}), study_folder, where=where)
    return KeptStage(parse_spec(note["trial"], TrialSpec, where=where), folder / BEST_FILE, note["data_fingerprint"])


def _folder(content: str) -> Path:
    return home() / STAGES_FOLDER / content[:16]


def _content_of(note: Any) -> str:
    return sha256_hex(json.dumps(note, sort_keys=True).encode())
