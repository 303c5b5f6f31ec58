"""Files of a recorded trial as a self-contained model, which needs neither its store, nor its data set, nor this home.

`model.json` describes network and data, `best.safetensors` has the weights. If the network needs them, there are also
`tokenizer/` of its text model and `plugins/` with plugin code; if an index was asked for, `index.*`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from vsetune.config.sources.trial_inputs import DataSpec, TextModel
from vsetune.config.study.training import TrialSpec
from vsetune.data.captions.word_pieces import WordPieces
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.vocabulary import Vocabulary, tokenise
from vsetune.errors import DamagedCheckpoint, DataError, UsageError
from vsetune.home.hashes import sha256_of_file
from vsetune.home.whole_files import make_folder, read_json, write_json
from vsetune.networks.importing.imported import network_of
from vsetune.networks.importing.stored import StoredNetwork, StoredWeights
from vsetune.networks.network_base import Network
from vsetune.records.studies import BEST_FILE, Studies
from vsetune.study.kept_plugins import carry_plugins, load_kept, study_folder_of
from vsetune.study.recorded import RecordedAttempt, require_best_weights
from vsetune.training.search_index import SearchIndex
from vsetune.training.trained import TrainedTrial, described, described_by, trial_of

if TYPE_CHECKING:
    from vsetune.records.mlflow_models import MlflowModels

FORMAT = 1
MODEL_FILE = "model.json"
_TOKENIZER = "tokenizer"
_MOST_BYTES = 1 << 26
"""Largest size of `model.json`, which contains all words."""


@dataclass(frozen=True)
class CarriedNetwork:
    """A loaded model. name: STUDY/TRIAL. trial: with the network, for functions that score trials; trial.data is the
    data set that it was trained on. fingerprint: of this data set. encode: gives the ids of a sentence's words, or of
    its word pieces, including start and end. index: None unless the model has one.
    """

    name: str
    described: StoredNetwork
    trial: TrialSpec
    network: Network
    device: torch.device
    encode: Callable[[str], list[int]]
    fingerprint: str | None
    index: SearchIndex | None


def log_model(
    models: MlflowModels, store: Studies, attempt: RecordedAttempt, into: Path, *, index: str | None = None,
    device: torch.device | None = None,
) -> tuple[str, bool]:
    """Logs a model. Returns (address for `mlflow.pyfunc.load_model`, whether it is new); the same weights and index are
    logged only once.

    into: an empty folder that must exist during this call. index: a split, whose images and captions are encoded on
    `device` and added to the model. StaleCheckpoint if no weights are left; also the errors of `MlflowModels.log` and
    `encode_split`.
    """
    weights = require_best_weights(store, attempt, into)
    sha256 = sha256_of_file(weights)
    known = models.known(attempt.record, weights_sha256=sha256, index=index)
    if known is not None:
        return known, False
    folder = into / "model"
    folder.mkdir()
    described = _write(folder, attempt, weights, index, device or torch.device("cpu"))
    address = models.log(
        attempt.record, folder, weights_sha256=sha256, index=index, reads_pieces=described.words is None
    )
    return address, True


def write_model(
    store: Studies, attempt: RecordedAttempt, folder: Path, *, index: str | None, device: torch.device
) -> None:
    """Writes the files of a model to a new folder, without MLflow. index, errors: as of `log_model`; UsageError where
    the folder has files."""
    require_new_folder(folder)
    with TemporaryDirectory() as into:
        weights = require_best_weights(store, attempt, Path(into))
        make_folder(folder)
        _write(folder, attempt, weights, index, device)


def require_new_folder(folder: Path) -> None:
    """UsageError where the folder has files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError("VSE-S190", "{folder}: has files already, need a new or an empty folder", folder=folder)


def load_model(folder: Path, *, device: torch.device) -> CarriedNetwork:
    """Loads a model from its folder. DataError if it is not a model of this version of vsetune, DamagedCheckpoint for
    changed weights; both of one line."""
    plain: Any = read_json(folder / MODEL_FILE, most_bytes=_MOST_BYTES)
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise DataError(
            "VSE-S068", "{model}: no model of this version of vsetune; log it again with vsetune trial model",
            model=folder,
        )
    if sha256_of_file(folder / BEST_FILE) != plain["weights_sha256"]:
        raise DamagedCheckpoint(
            "VSE-S069", "{file}: differs from the logged file (SHA-256); log it again", file=folder / BEST_FILE
        )
    load_kept(plain["network"].get("plugins", {}), folder, where=plain["name"])
    described = StoredNetwork.from_plain(plain["network"], where=str(folder))
    return CarriedNetwork(
        plain["name"], described, trial_of(described, DataSpec.model_validate(plain["data"])),
        network_of(folder / BEST_FILE, described=described).to(device), device,
        _encoder(described, _carried_tokeniser(described, folder)),
        plain["fingerprint"], SearchIndex.load(folder, device=device),
    )


def carried_trial(name: str, trained: TrainedTrial) -> CarriedNetwork:
    """A recorded trial's network and its data set, as a model that searches this data set. name: STUDY/TRIAL."""
    held = described(trained.trial, trained.dataset)
    encode = _encoder(held, held.spec.reads.word_pieces)
    fingerprint = trained.dataset.fingerprint
    return CarriedNetwork(name, held, trained.trial, trained.network, trained.device, encode, fingerprint, None)


def _write(
    folder: Path, attempt: RecordedAttempt, weights: Path, index: str | None, device: torch.device
) -> StoredNetwork:
    trial, start = attempt.trial(), attempt.record.start
    held = described_by(weights, trial) or StoredWeights.open(weights).described()
    assert held is not None
    shutil.copyfile(weights, folder / BEST_FILE)
    reads = held.spec.reads
    if reads.word_pieces is not None:
        WordPieces(reads.word_pieces).save(folder / _TOKENIZER)
    carry_plugins(held.plugins, study_folder_of(attempt.folder), folder, where=attempt.where)
    if index is not None:
        dataset = Dataset.open(trial.data.path)
        network = network_of(weights, described=held).to(device)
        SearchIndex.of_split(network, dataset, index, trial=trial, device=device).save(folder)
    plain = {
        "format": FORMAT, "name": f"{start.study}/{start.trial}", "run": attempt.record.attempt_id,
        "weights_sha256": sha256_of_file(weights), "network": held.to_plain(), "data": trial.data.to_plain(),
        "fingerprint": start.protocol.get("data_fingerprint"),
    }
    write_json(folder / MODEL_FILE, plain, durable=False)
    return held


def _carried_tokeniser(held: StoredNetwork, folder: Path) -> TextModel | None:
    pieces = held.spec.reads.word_pieces
    return None if pieces is None else replace(pieces, name=str(folder / _TOKENIZER), revision=None)


def _encoder(held: StoredNetwork, pieces: TextModel | None) -> Callable[[str], list[int]]:
    """Ids of a sentence. pieces: the tokeniser of a network that reads word pieces."""
    if held.words is not None:
        return _by_words(Vocabulary(held.words))
    assert pieces is not None
    return _one_by_one(WordPieces(pieces))


def _by_words(vocabulary: Vocabulary) -> Callable[[str], list[int]]:
    return lambda sentence: vocabulary.encode(tokenise(sentence))


def _one_by_one(pieces: WordPieces) -> Callable[[str], list[int]]:
    return lambda sentence: pieces.encode([sentence])[0]
