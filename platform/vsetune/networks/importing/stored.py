"""Weights in a safetensors file, imported or the best of a trial, with notes in its metadata."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import safe_open
from torch import Tensor, nn

from vsetune.config.component_specs import NETWORKS, NetworkSpec
from vsetune.config.spec.loading import parse_spec
from vsetune.errors import ConfigError, DataError
from vsetune.home.hashes import sha256_hex
from vsetune.networks.importing.released_file import rows_of
from vsetune.networks.parts.damaged import DAMAGED
from vsetune.networks.parts.text_transformer import Architecture, architecture_of

_KEY = "vsetune_trial"


@dataclass(frozen=True)
class WeightNotes:
    """network: its name. words: fingerprint of the words whose vectors it has; None where it reads word pieces.

    architecture: of the pre-trained models inside, for `build_network`. description: of the network and its data, as
    `StoredNetwork.to_plain` gives it; None in files of earlier versions.
    """

    network: str
    words: str | None
    architecture: Architecture
    description: Mapping[str, Any] | None = None

    @property
    def plugins(self) -> dict[str, str]:
        """SHA-256 of the plugin code that the network uses, by key."""
        return dict((self.description or {}).get("plugins", {}))

    @classmethod
    def of(
        cls, network: nn.Module, name: str, words: Sequence[str] | None,
        description: Mapping[str, Any] | None = None,
    ) -> WeightNotes:
        """Notes for the weights of a network. name: as study files have it."""
        fingerprint = None if words is None else fingerprint_of_words(words)
        return cls(name, fingerprint, architecture_of(network), description)

    def to_metadata(self, *, step: int) -> dict[str, str]:
        """For the header of a safetensors file. step: of the training, for people."""
        return {_KEY: json.dumps({"step": step, **vars(self)})}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str] | None) -> WeightNotes | None:
        """None where the file has none. ValueError when they are damaged."""
        text = (metadata or {}).get(_KEY)
        if text is None:
            return None
        plain = json.loads(text)
        if not isinstance(plain, dict) or not plain.keys() >= {"network", "words", "architecture"}:
            raise ValueError("notes of another form")
        words, architecture, description = plain["words"], plain["architecture"], plain.get("description")
        are_sound = isinstance(plain["network"], str) and isinstance(words, str | None) and _is_plain(architecture)
        if not are_sound or not isinstance(description, dict | None):
            raise ValueError("notes of another form")
        return cls(plain["network"], words, architecture, description)


def read_notes(path: Path) -> WeightNotes | None:
    """The notes in a file of weights; only its header is read. Raises what DAMAGED lists where there is none."""
    with safe_open(path, framework="pt") as stream:
        return WeightNotes.from_metadata(stream.metadata())


def fingerprint_of_words(words: Sequence[str]) -> str:
    """SHA-256 (first 16 hex digits) of words in their order."""
    return sha256_hex(json.dumps(list(words)).encode())[:16]


def _is_plain(architecture: Any) -> bool:
    return isinstance(architecture, dict) and all(isinstance(config, dict) for config in architecture.values())


DESCRIPTION = "vsetune_network"
"""Key of the file's metadata for the description of its network."""
WORD_VECTORS = "words.weight"
"""Word embeddings of every network that reads words."""


@dataclass(frozen=True)
class StoredNetwork:
    """The description of a network in a file of weights. source: origin of imported weights, or STUDY/TRIAL.

    words: of the ids in their order; None: not known, or word pieces. spare: modules that a network started from an
    imported file may omit. features: how those of a trial's data set were made; empty: not known. plugins: SHA-256 of
    the plugin code by key, as a trial has them. boxes: whether its regions came with boxes.
    """

    source: str
    name: str
    spec: NetworkSpec
    regions: int
    width: int
    vocabulary_size: int
    words: tuple[str, ...] | None
    spare: tuple[str, ...] = ()
    features: Mapping[str, Any] = field(default_factory=dict)
    plugins: Mapping[str, str] = field(default_factory=dict)
    boxes: bool = False

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], *, where: str) -> StoredNetwork:
        """The description from plain data. DataError in one line for a network, or settings, that this version does not
        know."""
        try:
            return _described(plain)
        except (*DAMAGED, ConfigError) as error:
            raise DataError(
                "VSE-N052", "{path}: holds a network with settings that this version of vsetune does not know; use the "
                "version, and the plugins, that it was trained with.", path=where,
            ) from error

    def to_plain(self) -> dict[str, Any]:
        """For the header of a file; empty fields are left out."""
        plain = {
            "source": self.source, "spec": self.spec.to_plain(), "regions": self.regions, "width": self.width,
            "vocabulary_size": self.vocabulary_size, "words": self.words,
        }
        more = {"spare": self.spare, "features": dict(self.features), "plugins": dict(self.plugins),
                "boxes": self.boxes}
        return plain | {name: value for name, value in more.items() if value}

    @property
    def lacks_words(self) -> bool:
        """Whether the words of its word vectors are unknown: then it can neither be scored nor trained further."""
        return self.words is None and self.spec.reads.word_pieces is None


@dataclass(frozen=True)
class StoredWeights:
    """A file by its header. shapes: of its tensors. network: of an imported file, None for weights of a trial.

    notes: of a trial's weights; None for those of earlier versions.
    """

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    network: StoredNetwork | None
    notes: WeightNotes | None = None

    @classmethod
    def open(cls, path: Path) -> StoredWeights:
        """DataError in one line when the file is missing, damaged, or made by another version."""
        if not path.is_file():
            need = "weights.safetensors of `vsetune networks import`"
            raise DataError("VSE-N033", "{path}: no such file; need {need}, check the path.", path=path, need=need)
        try:
            with safe_open(path, framework="pt") as stream:
                metadata = stream.metadata() or {}
                shapes = {name: tuple(stream.get_slice(name).get_shape()) for name in stream.keys()}  # noqa: SIM118
            description = json.loads(metadata.get(DESCRIPTION, "null"))
            network = None if description is None else _described(description)
            notes = WeightNotes.from_metadata(metadata)
        except (*DAMAGED, ConfigError) as error:
            raise DataError(
                "VSE-N049", "{path}: cannot be read as weights of ours; import the weights again.", path=path
            ) from error
        return cls(path, shapes, network, notes)

    def described(self) -> StoredNetwork | None:
        """The description of an imported file, or of a trial's; None for a trial's file of an earlier version.

        DataError in one line for a network, or settings, that this version does not know.
        """
        description = None if self.notes is None else self.notes.description
        if self.network is not None or description is None:
            return self.network
        return StoredNetwork.from_plain(description, where=str(self.path))

    def unknown(self) -> DataError:
        """The error for a file that does not name its network."""
        return DataError(
            "VSE-N051", "{path}: does not say which network it holds; need weights of `vsetune networks import`, or of "
            "a trial (name one of an earlier version as STUDY/TRIAL).", path=self.path,
        )

    def without_spare(self, wanted: Collection[str]) -> set[str]:
        """Names of the tensors without those of spare modules that a network lacks. wanted: the names it has."""
        spare = () if self.network is None else tuple(f"{module}." for module in self.network.spare)
        return {name for name in self.shapes if name in wanted or not name.startswith(spare)}

    def tensors(self) -> dict[str, Tensor]:
        """All of them, on the CPU."""
        try:
            return safetensors.torch.load_file(self.path, device="cpu")
        except DAMAGED as error:
            raise DataError(
                "VSE-N049", "{path}: cannot be read as weights of ours; import the weights again.", path=self.path
            ) from error


def placed(vectors: Tensor, words: Sequence[str], released: Sequence[str], *, otherwise: Tensor) -> Tensor:
    """(words, width) word vectors in our order. vectors: (released, width). otherwise: rows for words that are missing
    there."""
    rows = rows_of(words, released)
    result = otherwise.clone()
    ours = [number for number, row in enumerate(rows) if row is not None]
    result[ours] = vectors[[row for row in rows if row is not None]].to(result)
    return result


def _described(plain: Mapping[str, Any]) -> StoredNetwork:
    words = plain.get("words")
    return StoredNetwork(
        source=plain["source"], name=plain["spec"]["name"],
        spec=parse_spec(plain["spec"], NETWORKS[plain["spec"]["name"]], where="network"),
        regions=plain["regions"], width=plain["width"], vocabulary_size=plain["vocabulary_size"],
        words=None if words is None else tuple(words), spare=tuple(plain.get("spare", ())),
        features=plain.get("features", {}), plugins=plain.get("plugins", {}), boxes=plain.get("boxes", False),
    )
