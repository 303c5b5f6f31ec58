"""Files of a recorded trial as a self-contained model, which needs neither its store, nor its data set, nor this home.

`model.json` describes network and data, `best.safetensors` has the weights. If the network needs them, there are also
`tokenizer/` of its text model and `plugins/` with plugin code; if an index was asked for, `index.*`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vsetune.config.sources.trial_inputs import DataSpec, TextModel
from vsetune.config.study.training import TrialSpec
from vsetune.data.captions.word_pieces import WordPieces
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.vocabulary import Vocabulary, tokenise
from vsetune.errors import DamagedCheckpoint, DataError
from vsetune.networks.importing.imported import network_of
from vsetune.networks.importing.stored import StoredNetwork, StoredWeights
from vsetune.networks.network_base import Network
from vsetune.records.studies import Studies
from vsetune.storage.hashes import sha256_of_file
from vsetune.storage.whole_files import read_json, write_json
from vsetune.study import messages
from vsetune.study.kept_plugins import carry_plugins, load_kept, study_folder_of
from vsetune.study.recorded import RecordedAttempt, require_best_weights
from vsetune.training.checkpoint import BEST_FILE
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
    held = _write(folder, attempt, weights, sha256, index, device or torch.device("cpu"))
    address = models.log(
        attempt.record, folder, weights_sha256=sha256, index=index, reads_pieces=held.words is None
    )
    return address, True


def load_model(folder: Path, *, device: torch.device) -> CarriedNetwork:
    """Loads a model from its folder. DataError if it is not a model of this version of vsetune, DamagedCheckpoint for
    changed weights; both of one line."""
    plain: Any = read_json(folder / MODEL_FILE, most_bytes=_MOST_BYTES)
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise DataError(messages.MODEL_OTHER_VERSION(model=folder))
    if sha256_of_file(folder / BEST_FILE) != plain["weights_sha256"]:
        raise DamagedCheckpoint(messages.MODEL_CHANGED(file=folder / BEST_FILE))
    load_kept(plain["network"].get("plugins", {}), folder, where=plain["name"])
    held = StoredNetwork.from_plain(plain["network"], where=str(folder))
    if held.words is None:
        encode = _one_by_one(WordPieces(TextModel(str(folder / _TOKENIZER))))
    else:
        encode = _by_words(Vocabulary(held.words))
    return CarriedNetwork(
        plain["name"], held, trial_of(held, DataSpec.model_validate(plain["data"])),
        network_of(folder / BEST_FILE, described=held).to(device), device, encode,
        plain["fingerprint"], SearchIndex.load(folder, device=device),
    )


def carried(trained: TrainedTrial, *, name: str) -> CarriedNetwork:
    """The same in memory, of a network beside its data set. name: for messages."""
    held, dataset, reads = described(trained.trial, trained.dataset), trained.dataset, trained.trial.network.reads
    encode = _by_words(dataset.vocabulary) if reads.word_pieces is None else _one_by_one(WordPieces(reads.word_pieces))
    return CarriedNetwork(
        name, held, trained.trial, trained.network, trained.device, encode, dataset.fingerprint, index=None
    )


def _write(
    folder: Path, attempt: RecordedAttempt, weights: Path, sha256: str, index: str | None, device: torch.device
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
        "weights_sha256": sha256, "network": held.to_plain(), "data": trial.data.to_plain(),
        "fingerprint": start.protocol.get("data_fingerprint"),
    }
    write_json(folder / MODEL_FILE, plain, durable=False)
    return held


def _by_words(vocabulary: Vocabulary) -> Callable[[str], list[int]]:
    return lambda sentence: vocabulary.encode(tokenise(sentence))


def _one_by_one(pieces: WordPieces) -> Callable[[str], list[int]]:
    return lambda sentence: pieces.encode([sentence])[0]
