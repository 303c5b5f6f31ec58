"""A released model in our terms: spec of the network, sizes of its data, weights; and the file that keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from vsetune.config.loading import parse_spec
from vsetune.config.networks import NETWORKS, NetworkSpec
from vsetune.errors import DataError
from vsetune.networks import build_network
from vsetune.networks.pretrained import weights_follow

_DESCRIPTION = "vsetune_network"


@dataclass(frozen=True)
class Imported:
    """spec: the network, resolved. told: what the file determines of it, `name` included, in our words.

    regions, width: of the features it reads; regions is 1 where any number will do. vocabulary_size: ids, those of the
    released vocabulary. weights: the whole state dict. unused: released name -> why it is not needed. assumed:
    hyperparameters the file does not tell.
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

    def to_safetensors(self) -> bytes:
        """The weights, with what `network_of` needs to build the network again."""
        description = {
            "source": self.source, "spec": self.spec.to_plain(), "regions": self.regions, "width": self.width,
            "vocabulary_size": self.vocabulary_size,
        }
        content: bytes = safetensors.torch.save(dict(self.weights), metadata={_DESCRIPTION: json.dumps(description)})
        return content

    def study_entry(self) -> dict[str, Any]:
        """The network as an entry of `networks` in a study file."""
        told = dict(self.told)
        return {"name": told.pop("name"), "fixed": told}


def network_of(path: Path) -> nn.Module:
    """The network in a file of `to_safetensors`, in evaluation mode. DataError in one line if it is another file."""
    try:
        with safe_open(path, framework="pt") as stream:
            description = json.loads((stream.metadata() or {}).get(_DESCRIPTION, "null"))
        weights = safetensors.torch.load_file(path, device="cpu")
    except (OSError, SafetensorError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); import the weights again.") from error
    if not isinstance(description, dict):
        raise DataError(f"{path}: does not say which network it holds; need a file of `vsetune networks import`.")
    spec = parse_spec(description["spec"], NETWORKS[description["spec"]["name"]], where=str(path))
    sizes = {name: description[name] for name in ("regions", "width", "vocabulary_size")}
    # The parameters drawn here are replaced: the generator stays as it was, and no pre-trained weights are read.
    with torch.random.fork_rng(devices=[]), weights_follow():
        network = build_network(spec, **sizes)
    network.load_state_dict(weights)
    return network.eval()
