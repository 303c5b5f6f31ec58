"""Weights in a safetensors file: of `vsetune networks import`, or the best ones of a trial."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import safe_open
from torch import Tensor

from vsetune.config.spec.loading import parse_spec
from vsetune.errors import ConfigError, DataError
from vsetune.networks.importing.released_words import rows_of
from vsetune.networks.importing.weight_notes import WeightNotes
from vsetune.networks.network_catalogue import NETWORKS
from vsetune.networks.network_spec import NetworkSpec
from vsetune.networks.parts.damaged import DAMAGED

DESCRIPTION = "vsetune_network"
"""Key of the file's metadata that says which network it holds."""
WORD_VECTORS = "words.weight"
"""Word embeddings of every network that reads words."""


@dataclass(frozen=True)
class ImportedNetwork:
    """What an imported file says of its network. words: of the rows of its word vectors; None: not known, or pieces.

    spare: modules that a network started from it may do without.
    """

    source: str
    name: str
    spec: NetworkSpec
    regions: int
    width: int
    vocabulary_size: int
    words: tuple[str, ...] | None
    spare: tuple[str, ...] = ()

    @property
    def lacks_words(self) -> bool:
        """Its word vectors belong to words that nobody told."""
        return self.words is None and self.spec.reads.word_pieces is None


@dataclass(frozen=True)
class StoredWeights:
    """A file by its header. shapes: of its tensors. network: of an imported file, None for weights of a trial.

    notes: of a trial's weights; None for those of earlier versions.
    """

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    network: ImportedNetwork | None
    notes: WeightNotes | None = None

    @classmethod
    def open(cls, path: Path) -> StoredWeights:
        """DataError in one line when the file is missing, damaged, or made by another version."""
        if not path.is_file():
            raise DataError(f"{path}: no such file; need weights.safetensors of `vsetune networks import`.")
        try:
            with safe_open(path, framework="pt") as stream:
                metadata = stream.metadata() or {}
                shapes = {name: tuple(stream.get_slice(name).get_shape()) for name in stream.keys()}  # noqa: SIM118
            description = json.loads(metadata.get(DESCRIPTION, "null"))
            network = None if description is None else _described(description)
            notes = WeightNotes.from_metadata(metadata)
        except (*DAMAGED, ConfigError) as error:
            raise DataError(f"{path}: cannot be read as weights of ours; import the weights again.") from error
        return cls(path, shapes, network, notes)

    def without_spare(self, wanted: Collection[str]) -> set[str]:
        """Names of the tensors but those of spare modules that a network lacks. wanted: the names it has."""
        spare = () if self.network is None else tuple(f"{module}." for module in self.network.spare)
        return {name for name in self.shapes if name in wanted or not name.startswith(spare)}

    def tensors(self) -> dict[str, Tensor]:
        """All of them, on the CPU."""
        try:
            return safetensors.torch.load_file(self.path, device="cpu")
        except DAMAGED as error:
            raise DataError(f"{self.path}: cannot be read as weights of ours; import the weights again.") from error


def placed(vectors: Tensor, words: Sequence[str], released: Sequence[str], *, otherwise: Tensor) -> Tensor:
    """(words, width) word vectors in our order. vectors: (released, width). otherwise: rows of words not in there."""
    rows = rows_of(words, released)
    result = otherwise.clone()
    ours = [number for number, row in enumerate(rows) if row is not None]
    result[ours] = vectors[[row for row in rows if row is not None]].to(result)
    return result


def _described(plain: Mapping[str, Any]) -> ImportedNetwork:
    words = plain.get("words")
    return ImportedNetwork(
        source=plain["source"], name=plain["spec"]["name"],
        spec=parse_spec(plain["spec"], NETWORKS[plain["spec"]["name"]], where="network"),
        regions=plain["regions"], width=plain["width"], vocabulary_size=plain["vocabulary_size"],
        words=None if words is None else tuple(words), spare=tuple(plain.get("spare", ())),
    )
