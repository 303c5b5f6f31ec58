"""The encoded images and captions of a split with their names, as a file: the items that a query is compared with."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from vsetune.config.study.training import TrialSpec
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.shards import split_records
from vsetune.errors import DataError
from vsetune.networks.encoded import Encoded
from vsetune.networks.network_base import Network
from vsetune.training.validation import EncodedSplit, encode_split

INDEX_FILE = "index.safetensors"
_NAMES = "vsetune_index"
"""Key of the file's metadata for split and names."""
_ON_HOST = "host_lengths"
"""Of `Encoded`: a copy of other numbers in it."""


@dataclass(frozen=True)
class SearchIndex:
    """images: ids as ingested, in the order of the split. captions: texts, likewise."""

    split: str
    encoded: EncodedSplit
    images: list[str]
    captions: list[str]

    @classmethod
    def of_split(
        cls, network: Network, dataset: Dataset, split: str, *, trial: TrialSpec, device: torch.device
    ) -> SearchIndex:
        """Encodes a split. DataError when it is missing or damaged."""
        records = [record for _, record in split_records(dataset, split)]
        return cls(
            split, encode_split(network, dataset, split, trial=trial, device=device),
            [record.name or str(record.index) for record in records],
            [caption for record in records for caption in record.captions],
        )

    def save(self, folder: Path) -> None:
        """A file in the folder: tensors as the network gave them, names in its header."""
        encoded = self.encoded
        tensors = {"places": encoded.places, "owner": encoded.owner, **_tensors("images", encoded.images)}
        for number, group in enumerate(encoded.captions):
            tensors |= _tensors(f"captions.{number}", group)
        plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
        names = {
            "split": self.split, "groups": len(encoded.captions), "images": self.images, "captions": self.captions,
        }
        safetensors.torch.save_file(plain, folder / INDEX_FILE, metadata={_NAMES: json.dumps(names)})

    @classmethod
    def load(cls, folder: Path, *, device: torch.device) -> SearchIndex | None:
        """None where the folder has no index. DataError in one line for a damaged one."""
        file = folder / INDEX_FILE
        if not file.is_file():
            return None
        try:
            with safe_open(file, framework="pt") as stream:
                names = json.loads(stream.metadata()[_NAMES])
            tensors = safetensors.torch.load_file(file, device=str(device))
            captions = [_encoded(f"captions.{number}", tensors) for number in range(names["groups"])]
            encoded = EncodedSplit(_encoded("images", tensors), captions, tensors["places"], tensors["owner"])
            return cls(names["split"], encoded, names["images"], names["captions"])
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(
                "VSE-T019", "{file}: damaged ({reason}); log the model again", file=file, reason=type(error).__name__
            ) from error


def _tensors(prefix: str, items: Encoded) -> dict[str, Tensor]:
    found = {field.name: getattr(items, field.name) for field in fields(items) if field.name != _ON_HOST}
    return {f"{prefix}.{name}": value for name, value in found.items() if value is not None}


def _encoded(prefix: str, tensors: dict[str, Tensor]) -> Encoded:
    found = {field.name: tensors.get(f"{prefix}.{field.name}") for field in fields(Encoded)}
    return Encoded(**{name: value for name, value in found.items() if value is not None})
