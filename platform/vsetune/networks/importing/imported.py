"""A released model as one of our networks: spec, sizes of its data, weights; and the file that stores them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from vsetune.errors import DataError
from vsetune.networks.importing.released_words import UNKNOWN, rows_of
from vsetune.networks.importing.stored import DESCRIPTION, WORD_VECTORS, StoredNetwork, StoredWeights, placed
from vsetune.networks.network_base import Network
from vsetune.networks.network_building import build_network
from vsetune.networks.network_spec import NetworkSpec


@dataclass(frozen=True)
class Imported:
    """spec: the network, resolved. told: settings that the file determines, `name` included, under our names.

    regions, width: of the features it reads; regions is 1 where any number is allowed. vocabulary_size: number of ids
    in the released vocabulary. weights: the complete state dict. unused: released name -> why it is not needed.
    assumed: hyperparameters that the file does not contain. words: of the ids, in order; None: not known, or word
    pieces. spare: modules that a training started from the weights may omit.
    """

    source: str
    spec: NetworkSpec
    told: Mapping[str, Any]
    regions: int
    width: int
    vocabulary_size: int
    weights: Mapping[str, Tensor]
    unused: Mapping[str, str]
    assumed: tuple[str, ...]
    words: tuple[str, ...] | None = None
    spare: tuple[str, ...] = ()

    def to_safetensors(self) -> bytes:
        """The weights, with the words and the data from which `network_of` rebuilds the network."""
        description = StoredNetwork(
            self.source, self.spec.to_plain()["name"], self.spec, self.regions, self.width, self.vocabulary_size,
            self.words, self.spare,
        ).to_plain()
        content: bytes = safetensors.torch.save(dict(self.weights), metadata={DESCRIPTION: json.dumps(description)})
        return content

    @property
    def lacks_words(self) -> bool:
        """Whether the words of its word vectors are unknown: then it can neither be scored nor trained further."""
        return self.words is None and self.spec.reads.word_pieces is None

    def study_entry(self, weights: Path | None = None) -> dict[str, Any]:
        """The network as an entry of `networks` in a study file. weights: the file that a training starts from."""
        told = dict(self.told)
        start = {} if weights is None or self.lacks_words else {"start_from": str(weights)}
        return {"name": told.pop("name"), "fixed": told | start}


def network_of(path: Path, *, words: Sequence[str] | None = None, described: StoredNetwork | None = None) -> Network:
    """The network in a file of `to_safetensors` or of a trial, in evaluation mode. DataError in one line for any other
    file.

    described: the description that a file of an earlier version lacks. words: number the captions by these words
    instead of the stored ones, special words first as in our data sets; words that the file does not know are read as
    its unknown word. Only for imported files that store their words.
    """
    stored = StoredWeights.open(path)
    held, weights = described or stored.described(), stored.tensors()
    if held is None:
        raise stored.unknown()
    size = held.vocabulary_size
    if words is not None and held.words is not None:
        vectors, size = weights[WORD_VECTORS], len(words)
        unknown = vectors[rows_of([UNKNOWN], held.words)]
        weights[WORD_VECTORS] = placed(vectors, words, held.words, otherwise=unknown.repeat(size, 1))
    # The parameters drawn here are replaced: the generator stays as it was, and no pre-trained weights are read.
    with torch.random.fork_rng(devices=[]):
        network = build_network(
            held.spec, regions=held.regions, width=held.width, vocabulary_size=size, pretrained=False,
            architecture=None if stored.notes is None else stored.notes.architecture,
        )
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise DataError(f"{path}: its tensors are not those of its network; import the weights again.") from error
    return network.eval()
