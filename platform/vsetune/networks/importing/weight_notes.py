"""Notes about the best weights of a trial: in the metadata of `best.safetensors`, beside its tensors.

They have everything that is needed to rebuild a network and is neither in its spec nor in a tensor. Files of earlier
versions have no notes and remain valid: the missing data is read from its original source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import nn

from vsetune.files.hashes import sha256_hex
from vsetune.networks.parts.pretrained import Architecture, architecture_of

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
