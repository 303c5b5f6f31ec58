"""Imported weights scored on a data set, as a trial's best weights are."""

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
from vsetune.networks.importing.stored import ImportedNetwork, StoredWeights
from vsetune.networks.network_base import Network
from vsetune.scoring.evaluation import evaluate
from vsetune.scoring.pair_scores import Report
from vsetune.training.start import count_known


@dataclass(frozen=True)
class ImportedTrial:
    """network: in evaluation mode, on `device`. dataset: its captions are numbered by the words of the weights.

    trial: names the network and the split, so that all that scores trials scores this; its loss is never read.
    words: how many of the data set's vocabulary the weights know, and how many there are; None for word pieces.
    """

    held: ImportedNetwork
    trial: TrialSpec
    dataset: Dataset
    network: Network
    device: torch.device
    words: tuple[int, int] | None


def load_imported(weights: Path, data: str, *, split: str, device: torch.device) -> ImportedTrial:
    """Imported weights beside a data set. DataError in one line when either cannot be read, or they do not fit."""
    held = StoredWeights.open(weights).network
    if held is None:
        raise DataError(f"{weights}: does not say which network it holds; need a file of `vsetune networks import`.")
    if held.words is None and held.spec.reads.word_pieces is None:
        raise DataError(
            f"{weights}: {held.vocabulary_size} word vectors, and no words to them; import the weights again with "
            "--words VOCABULARY."
        )
    dataset = Dataset.open(data)
    dataset.require_unchanged([split])
    _check_features(held, dataset, weights)
    words = None
    if held.words is not None:
        words = count_known(dataset.vocabulary.words, held.words)
        # Captions are numbered by the released words: a word that is rare in these data but known there counts.
        dataset = replace(dataset, vocabulary=_vocabulary(held.words))
    network = network_of(weights, words=dataset.vocabulary.words)
    trial = _trial(held, data, split)
    return ImportedTrial(held, trial, dataset, network.to(device), device, words)


def evaluate_imported(imported: ImportedTrial, *, report: Report | None = None) -> dict[str, float]:
    """Recalls and ranks by name. report, errors: as in `evaluate`."""
    split = imported.trial.data.validation_split
    return evaluate(
        imported.network, imported.dataset, split, trial=imported.trial, device=imported.device, report=report
    )


def _check_features(held: ImportedNetwork, dataset: Dataset, weights: Path) -> None:
    features = dataset.manifest.features
    if held.spec.reads.pixels is not None:
        return
    if features.width != held.width:
        raise DataError(
            f"{weights}: reads features of {held.width} numbers, {dataset.path} has {features.width}; ingest the "
            "features that the weights were trained with."
        )
    if held.regions > 1 and {features.regions_min, features.regions} != {held.regions}:
        raise DataError(
            f"{weights}: reads {held.regions} regions, {dataset.path} has {features.regions_min} to "
            f"{features.regions}; ingest the features that the weights were trained with."
        )


def _vocabulary(released: tuple[str, ...]) -> Vocabulary:
    """The released words behind our special ones, each once."""
    special = {*SPECIAL_WORDS, "<unk>"}
    return Vocabulary(SPECIAL_WORDS + tuple(word for word in released if word not in special))


def _trial(held: ImportedNetwork, data: str, split: str) -> TrialSpec:
    fitting = (spec() for spec in LOSSES.values())
    loss = next(loss for loss in fitting if mismatch(held.spec, loss, batch_unit="pairs") is None)
    return TrialSpec.model_validate({
        "study": "imported", "trial": held.name, "cell": f"{held.name}.{loss.to_plain()['name']}", "seed": 0,
        "data": DataSpec(path=data, train_split=split, validation_split=split, test_split=split).to_plain(),
        "network": held.spec.to_plain(), "loss": loss.to_plain(), "training": TrainingSpec().to_plain(),
        "plugins": plugins_of(held.spec, loss),
    })
