"""Scores of weights in a file, imported or of a trial, on any data set that they can read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from vsetune.config.sources.data_set import DataSpec
from vsetune.config.study.compatibility import mismatch
from vsetune.config.study.plugin_use import plugins_of
from vsetune.config.study.training import TrainingSpec, TrialSpec
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.vocabulary import SPECIAL_WORDS, Vocabulary
from vsetune.errors import DataError
from vsetune.losses.loss_catalogue import LOSSES
from vsetune.networks.importing.imported import network_of
from vsetune.networks.importing.stored import StoredNetwork, StoredWeights
from vsetune.networks.network_base import Network
from vsetune.networks.network_building import build_network
from vsetune.scoring.evaluation import evaluate
from vsetune.scoring.pair_scores import Report
from vsetune.training.start import count_known
from vsetune.training.trained import features_made


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
    if held.words is None and held.spec.reads.word_pieces is None:
        raise DataError(
            f"{weights}: {held.vocabulary_size} word vectors, and no words to them; import the weights again with "
            "--words VOCABULARY."
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


def evaluate_stored(imported: StoredTrial, *, report: Report | None = None) -> dict[str, float]:
    """Recalls and ranks by name. report, errors: as in `evaluate`."""
    split = imported.trial.data.validation_split
    return evaluate(
        imported.network, imported.dataset, split, trial=imported.trial, device=imported.device, report=report
    )


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
            f"{weights}: reads features of {held.width} numbers, {dataset.path} has {features.width}; ingest the "
            "features that the weights were trained with."
        )
    counts = {features.regions_min, features.regions} if is_imported else {features.regions}
    if held.regions > 1 and counts != {held.regions} and _depends_on_regions(held):
        raise DataError(
            f"{weights}: reads {held.regions} regions, {dataset.path} has {features.regions_min} to "
            f"{features.regions}; ingest the features that the weights were trained with."
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
