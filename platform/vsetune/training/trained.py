"""A network with recorded or imported weights and its data set, and scores of it on any data set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vsetune.config.component_specs import LOSSES
from vsetune.config.sources.trial_inputs import DataSpec
from vsetune.config.study.compatibility import mismatch
from vsetune.config.study.evaluation_settings import EvaluationSpec
from vsetune.config.study.loss_settings import plugins_of
from vsetune.config.study.training import TrainingSpec, TrialSpec
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.vocabulary import SPECIAL_WORDS, Vocabulary
from vsetune.errors import ConfigError, DataError, StaleCheckpoint, one_line
from vsetune.networks.importing.imported import network_of
from vsetune.networks.importing.stored import StoredNetwork, StoredWeights, read_notes
from vsetune.networks.network_base import Network
from vsetune.networks.network_building import build_network
from vsetune.training.checkpoint import OF_DAMAGE
from vsetune.training.evaluation import evaluate
from vsetune.training.reranking import FirstStage
from vsetune.training.start import count_known
from vsetune.training.validation import Report


@dataclass(frozen=True)
class TrainedTrial:
    """network: on `device`, in evaluation mode."""

    trial: TrialSpec
    dataset: Dataset
    network: Network
    device: torch.device


def described_by(weights: Path, trial: TrialSpec) -> StoredNetwork | None:
    """The description of a network that a file of an earlier version lacks. It comes from its trial and from the
    training data set, which must still be at its place. None for a file that contains its own description."""
    notes = read_notes(weights)
    has_own = notes is not None and notes.description is not None
    return None if has_own else described(trial, Dataset.open(trial.data.path))


_OF_FEATURES = ("model", "revision", "seed", "image_size", "vector")
"""Settings of a recipe that change the meaning of a feature of the same width."""


def described(trial: TrialSpec, dataset: Dataset) -> StoredNetwork:
    """The description of a trial's network in its weights, which can then be used without its records and its data."""
    spec = trial.network
    return StoredNetwork(
        source=f"{trial.study}/{trial.trial}", name=spec.name, spec=spec.model_copy(update={"start_from": None}),
        regions=dataset.regions, width=dataset.width, vocabulary_size=len(dataset.vocabulary),
        words=dataset.vocabulary.words if spec.reads.word_pieces is None else None,
        features=features_made(dataset),
        plugins={key: sha256 for key, sha256 in trial.plugins.items() if key.startswith("network.")},
        boxes=dataset.manifest.features.boxes,
    )


def features_made(dataset: Dataset) -> dict[str, Any]:
    """Extractor of the features, and the settings that determine the meaning of a vector."""
    features = dataset.manifest.features
    settings = {key: features.recipe[key] for key in _OF_FEATURES if features.recipe.get(key) is not None}
    return {"extractor": features.extractor, **settings}


def load_trained(
    trial: TrialSpec, weights: Path, *, device: torch.device, data_fingerprint: str | None, where: str
) -> TrainedTrial:
    """weights: a `best.safetensors`. data_fingerprint: of the data set as it was trained on; None: not recorded.

    where: starts the messages. DataError when the data set is gone or has changed since, StaleCheckpoint when the
    weights are of another network, or cannot be read.
    """
    dataset = Dataset.open(trial.data.path)
    if data_fingerprint not in (None, dataset.fingerprint):
        raise DataError(
            "VSE-T026", "{where}: {data} is not the data set of its training any more (features, captions or "
            "vocabulary differ: fingerprint {then} then, {now} now); bring the data set back from its recipe, or train "
            "again.", where=where, data=trial.data.path, then=data_fingerprint, now=dataset.fingerprint,
        )
    try:
        network = network_of(weights, described=described(trial, dataset))
        holes = [name for name, value in network.state_dict().items() if bool(torch.isnan(value).any())]
        if holes:
            raise ValueError(f"{holes[0]} holds NaN")
    except (DataError, OSError, *OF_DAMAGE) as error:
        raise StaleCheckpoint(
            "VSE-T027", "{where}: {file} does not fit network {network} on {data}: it is damaged, or its tensors "
            "differ ({reason}), as of another version or other data; train again.", where=where, file=weights,
            network=trial.network.name, data=trial.data.path, reason=one_line(error),
        ) from error
    return TrainedTrial(trial, dataset, network.to(device), device)


@dataclass(frozen=True)
class StoredTrial:
    """network: in evaluation mode, on `device`. dataset: its captions are numbered by the vocabulary of the weights.

    trial: names the network and the split, so that code that scores trials can score this; its loss is never read.
    words: how many of the data set's vocabulary the weights know, and how many there are; None for word pieces.
    """

    held: StoredNetwork
    trial: TrialSpec
    dataset: Dataset
    network: Network
    device: torch.device
    words: tuple[int, int] | None


def load_stored(
    weights: Path, data: str, *, split: str, device: torch.device, described: StoredNetwork | None = None
) -> StoredTrial:
    """Combine weights and a data set. DataError in one line when either cannot be read, or they do not fit.

    described: the description that a file of an earlier version lacks.
    """
    stored = StoredWeights.open(weights)
    held = described or stored.described()
    if held is None:
        raise stored.unknown()
    if held.lacks_words:
        raise DataError(
            "VSE-T023", "{file}: {rows} word vectors, and no words to them; import the weights again with --words "
            "VOCABULARY", file=weights, rows=held.vocabulary_size,
        )
    dataset = Dataset.open(data)
    dataset.require_unchanged([split])
    _check_features(held, dataset, weights, is_imported=stored.network is not None)
    words = None
    if held.words is not None:
        words = count_known(dataset.vocabulary.words, held.words)
        # Captions are numbered by the words of the weights: one that is rare in these data but known there counts.
        dataset = replace(dataset, vocabulary=_vocabulary(held.words))
    is_numbered = held.words in (None, dataset.vocabulary.words)
    network = network_of(weights, words=None if is_numbered else dataset.vocabulary.words, described=described)
    spec = DataSpec(path=data, train_split=split, validation_split=split, test_split=split)
    trial = trial_of(held, spec)
    return StoredTrial(held, trial, dataset, network.to(device), device, words)


def evaluate_stored(
    imported: StoredTrial, *, wanted: EvaluationSpec | None = None, report: Report | None = None
) -> dict[str, float]:
    """Recalls and ranks by name. wanted: what else is computed. report, errors: as in `evaluate`."""
    split = imported.trial.data.validation_split
    trial = imported.trial.model_copy(update={"evaluation": wanted or EvaluationSpec()})
    return evaluate(imported.network, imported.dataset, split, trial=trial, device=imported.device, report=report)


def other_features(found: StoredTrial) -> str | None:
    """How the features of the data set were made, if those of the training were made differently: a vector of the same
    width may mean something else. None where no difference is known, and for networks that read photographs."""
    held, now = found.held.features, features_made(found.dataset)
    if not held or held == now or found.held.spec.reads.pixels is not None:
        return None
    here, there = (" ".join(f"{key} {value}" for key, value in made.items()) for made in (now, held))
    return f"features of {found.dataset.path} were made by {here}, those of the training by {there}"


def _check_features(held: StoredNetwork, dataset: Dataset, weights: Path, *, is_imported: bool) -> None:
    features = dataset.manifest.features
    if held.spec.reads.pixels is not None:
        return
    if features.width != held.width:
        raise DataError(
            "VSE-T028", "{file}: reads {reads}, {data} has {has}; ingest the features that the weights were trained "
            "with.", file=weights, reads=f"features of {held.width} numbers", data=dataset.path, has=features.width,
        )
    counts = {features.regions_min, features.regions} if is_imported else {features.regions}
    if held.regions > 1 and counts != {held.regions} and _depends_on_regions(held):
        raise DataError(
            "VSE-T028", "{file}: reads {reads}, {data} has {has}; ingest the features that the weights were trained "
            "with.", file=weights, reads=f"{held.regions} regions", data=dataset.path,
            has=f"{features.regions_min} to {features.regions}",
        )


def _depends_on_regions(held: StoredNetwork) -> bool:
    """Whether the shapes of its tensors depend on the number of regions."""
    shapes = []
    for regions in (held.regions, held.regions + 1):
        with torch.device("meta"):
            network = build_network(
                held.spec, regions=regions, width=held.width, vocabulary_size=held.vocabulary_size, pretrained=False
            )
        shapes.append({name: value.shape for name, value in network.state_dict().items()})
    return shapes[0] != shapes[1]


def _vocabulary(released: tuple[str, ...]) -> Vocabulary:
    """The words of a trial unchanged; released words after our special ones, each once."""
    if released[:len(SPECIAL_WORDS)] == SPECIAL_WORDS:
        return Vocabulary(released)
    special = {*SPECIAL_WORDS, "<unk>"}
    return Vocabulary(SPECIAL_WORDS + tuple(word for word in released if word not in special))


def trial_of(held: StoredNetwork, data: DataSpec) -> TrialSpec:
    """Names the network and its data, so that code that scores trials can score this; its loss is never read."""
    fitting = (spec() for spec in LOSSES.values())
    loss = next(loss for loss in fitting if mismatch(held.spec, loss, batch_unit="pairs") is None)
    return TrialSpec.model_validate({
        "study": "stored", "trial": held.name, "cell": f"{held.name}.{loss.to_plain()['name']}", "seed": 0,
        "data": data.to_plain(),
        "network": held.spec.to_plain(), "loss": loss.to_plain(), "training": TrainingSpec().to_plain(),
        "plugins": plugins_of(held.spec, loss),
    })


@dataclass(frozen=True)
class KeptStage:
    """trial: of the first stage. weights: a `best.safetensors` that does not change.

    data_fingerprint: of the data set that it was trained on; None: not recorded.
    """

    trial: TrialSpec
    weights: Path
    data_fingerprint: str | None


def open_first_stage(
    trial: TrialSpec, kept: KeptStage | None, dataset: Dataset, device: torch.device
) -> FirstStage | None:
    """The first stage of a trial, with its network loaded; None where the trial ranks every pair.

    ConfigError when the files of a named first stage are missing, when it does not embed, or when its weights do not
    fit; DataError when it was trained on other data.
    """
    wanted = trial.evaluation.rerank
    if wanted is None:
        return None
    where = f"study {trial.study} trial {trial.trial}: evaluation.rerank"
    if kept is None:
        raise ConfigError(
            "VSE-T017", "{where}: the files of {first} were not given; run it as a study, which brings them",
            where=where, first=wanted.first,
        )
    require_embedding(kept.trial, where=f"{where}.first: {wanted.first}")
    at_home = kept.trial.model_copy(update={"data": kept.trial.data.model_copy(update={"path": dataset.path})})
    try:
        trained = load_trained(
            at_home, kept.weights, device=device, data_fingerprint=kept.data_fingerprint, where=f"{where}.first"
        )
    except StaleCheckpoint as error:  # of another trial: nothing is wrong with the checkpoint of this one
        raise ConfigError(error.problem) from error
    return FirstStage(trained.network, trained.trial, top=wanted.top)


def require_embedding(trial: TrialSpec, *, where: str) -> None:
    """ConfigError for a first stage that scores pairs itself."""
    if trial.network.kind == "score":
        raise ConfigError(
            "VSE-T018", "{where} is of network {network}, which scores pairs; need a first stage that embeds, such as "
            "vse_infinity", where=where, network=trial.network.name,
        )
