"""What a frozen image tower makes of the photographs of a split: computed once per data set, read by every trial.

The array is beside the data set, or in the home's cache, where processes of a node map the same file; its name has the
hash of the tower's weights, so that a tower with other weights has another array.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import numpy as np
import torch

from vsetune.config.component_specs import NetworkSpec
from vsetune.config.sources.pretrained_models import find_model
from vsetune.config.sources.trial_inputs import NetworkReads
from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.batch import Batch
from vsetune.data.batches.reader import evaluation_batches
from vsetune.data.stored.array_cache import cached_array
from vsetune.data.stored.dataset import Dataset
from vsetune.home.hashes import fingerprint_of, sha256_hex
from vsetune.networks.inputs import ImageInputs
from vsetune.networks.network_base import FrozenTower, Network, evaluating
from vsetune.training.random_state import undisturbed

_METHOD = "frozen-vectors-1"
"""Part of the file name: raise the number when the vectors of an equal tower change."""
_IMAGES_AT_ONCE = 32


def trained_reads(spec: NetworkSpec) -> NetworkReads:
    """What batches of a training and of its validations have: no photographs where their vectors are constant."""
    return replace(spec.reads, pixels=None) if spec.has_constant_images else spec.reads


def frozen_vectors(
    network: Network, dataset: Dataset, split: str, *, trial: TrialSpec, device: torch.device
) -> np.ndarray | None:
    """(images of the split, W) float32, mapped; made first if needed. None for a network without constant images."""
    tower = network.frozen_tower() if trial.network.has_constant_images else None
    pixels = trial.network.reads.pixels
    if tower is None or pixels is None or pixels.processor is None:
        return None
    processor = pixels.processor
    made_of = fingerprint_of({
        "weights": {name: sha256_hex(value.cpu().contiguous().numpy().tobytes()) for name, value in
                    tower.weights.items()},
        "processor": find_model(processor.name, processor.revision, key=processor.key).identity,
        "size": pixels.size, "data": dataset.fingerprint,
    })

    def made() -> np.ndarray:
        with undisturbed(device), evaluating(network):
            return _made(tower, dataset, split, trial, device)

    return cached_array(
        dataset.path, f"{_METHOD}-{split}-{made_of}.npy", rows=dataset.split(split).images, make=made
    )


def with_vectors(batch: Batch, vectors: np.ndarray) -> Batch:
    """The batch with the vector of each image as its only region."""
    rows = torch.from_numpy(vectors[batch.image_ids.cpu().numpy()])[:, None]
    one = torch.ones(len(batch.image_ids), dtype=torch.int64)
    device = batch.image_ids.device
    return replace(batch, images=ImageInputs(
        rows.to(device), one.to(device), host_counts=None if device.type == "cpu" else one
    ))


def _made(tower: FrozenTower, dataset: Dataset, split: str, trial: TrialSpec, device: torch.device) -> np.ndarray:
    parts = []
    reads = NetworkReads(pixels=trial.network.reads.pixels)
    with closing(evaluation_batches(
        dataset, split, batch_size=_IMAGES_AT_ONCE, reads=reads, threads=trial.training.loader_workers
    )) as batches:
        for batch in batches:
            assert batch.images.pixels is not None
            parts.append(tower.vectors(batch.images.pixels.to(device)).float().cpu().numpy())
    return np.concatenate(parts)
