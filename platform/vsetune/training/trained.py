"""A network with the best weights of a trial, and its training data set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from vsetune.config.spec.foreign_text import one_line
from vsetune.config.study.training import TrialSpec
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import DamagedCheckpoint, DataError, StaleCheckpoint
from vsetune.networks.importing.stored import StoredNetwork
from vsetune.networks.importing.weight_notes import WeightNotes, read_notes
from vsetune.networks.network_base import Network
from vsetune.networks.network_building import build_network
from vsetune.networks.parts.backbone import names_of_colours
from vsetune.training.checkpoint import OF_DAMAGE


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
    is_told = notes is not None and notes.description is not None
    return None if is_told else described(trial, Dataset.open(trial.data.path))


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
    weights are of another network, DamagedCheckpoint (a StaleCheckpoint) when they cannot be read.
    """
    dataset = Dataset.open(trial.data.path)
    values, notes = _weights(weights, where)
    with torch.random.fork_rng(devices=[]):  # the parameters drawn here are replaced
        network = build_network(
            trial.network, regions=dataset.regions, width=dataset.width, vocabulary_size=len(dataset.vocabulary),
            pretrained=False, architecture=notes.architecture if notes is not None else None,
        )
    own = network.state_dict()
    differing = [name for name in own.keys() & values.keys() if own[name].shape != values[name].shape]
    if data_fingerprint not in (None, dataset.fingerprint):
        resized = "; its vocabulary or features have another size" if differing else ""
        raise DataError(
            f"{where}: {trial.data.path} is not the data set of its training any more (features, captions or "
            f"vocabulary differ: fingerprint {data_fingerprint} then, {dataset.fingerprint} now{resized}); bring the "
            "data set back from its recipe, or train again."
        )
    unmatched = sorted({*differing, *(own.keys() ^ values.keys())} - (names_of_colours(network) - values.keys()))
    if unmatched:
        raise StaleCheckpoint(
            f"{where}: {weights} does not fit network {trial.network.name} on {trial.data.path} ({len(unmatched)} "
            f"tensors differ, first {unmatched[0]}); it was written by another version or for other data, train again."
        )
    try:
        network.load_state_dict(values)
    except OF_DAMAGE as error:
        raise DamagedCheckpoint(f"{where}: {weights}: damaged ({one_line(error)}); train the trial again.") from error
    return TrainedTrial(trial, dataset, network.to(device).eval(), device)


def _weights(path: Path, where: str) -> tuple[dict[str, Tensor], WeightNotes | None]:
    """The tensors and the notes of a file."""
    try:
        is_file = path.is_file()
        values = safetensors.torch.load_file(path, device="cpu") if is_file else {}
        notes = read_notes(path) if is_file else None
    except (OSError, *OF_DAMAGE) as error:
        raise DamagedCheckpoint(
            f"{where}: {path}: cannot be read ({one_line(error)}); train the trial again."
        ) from error
    if not is_file:
        raise DamagedCheckpoint(f"{where}: {path}: cannot be read (no regular file there); train the trial again.")
    for name, value in values.items():
        if value.is_floating_point() and bool(torch.isnan(value).any()):
            raise DamagedCheckpoint(f"{where}: {path}: damaged ({one_line(name)} holds NaN); train the trial again.")
    return values, notes
