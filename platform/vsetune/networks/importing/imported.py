"""A released model as one of our networks: its names mapped to ours, spec, sizes, weights, and its file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from vsetune.errors import DataError
from vsetune.networks.importing.released_file import UNKNOWN, WEIGHT_NORM, Released, rows_of
from vsetune.networks.importing.stored import DESCRIPTION, WORD_VECTORS, StoredNetwork, StoredWeights, placed
from vsetune.networks.network_base import Network
from vsetune.networks.network_building import build_network


@dataclass(frozen=True, kw_only=True)
class Imported(StoredNetwork):
    """The network that a file holds. regions is 1 where any number is allowed; vocabulary_size counts the ids of the
    released vocabulary.

    settings: those that the file determines, `name` included, under our names. weights: the complete state dict.
    unused: released name -> why it is not needed. assumed: hyperparameters that the file does not contain.
    """

    settings: Mapping[str, Any]
    weights: Mapping[str, Tensor]
    unused: Mapping[str, str]
    assumed: tuple[str, ...]

    def to_safetensors(self) -> bytes:
        """The weights, with the words and the data from which `network_of` rebuilds the network."""
        metadata = {DESCRIPTION: json.dumps(self.to_plain())}
        content: bytes = safetensors.torch.save(dict(self.weights), metadata=metadata)
        return content

    def study_entry(self, weights: Path | None = None) -> dict[str, Any]:
        """The network as an entry of `networks` in a study file. weights: the file that a training starts from."""
        settings = dict(self.settings)
        start = {} if weights is None or self.lacks_words else {"start_from": str(weights)}
        return {"name": settings.pop("name"), "fixed": settings | start}


def network_of(path: Path, *, words: Sequence[str] | None = None, described: StoredNetwork | None = None) -> Network:
    """The network in a file of `to_safetensors` or of a trial, in evaluation mode. DataError in one line for any other
    file.

    described: the description that a file of an earlier version lacks. words: number the captions by these words
    instead of the stored ones, special words first as in our data sets; words that the file does not know are read as
    its unknown word. Only for imported files that store their words.
    """
    stored = StoredWeights.open(path)
    found, weights = described or stored.described(), stored.tensors()
    if found is None:
        raise stored.unknown()
    size = found.vocabulary_size
    if words is not None and found.words is not None:
        vectors, size = weights[WORD_VECTORS], len(words)
        unknown = vectors[rows_of([UNKNOWN], found.words)]
        weights[WORD_VECTORS] = placed(vectors, words, found.words, otherwise=unknown.repeat(size, 1))
    # The parameters sampled here are replaced: the generator stays as it was, and no pre-trained weights are read.
    with torch.random.fork_rng(devices=[]):
        network = build_network(
            found.spec, regions=found.regions, width=found.width, vocabulary_size=size, pretrained=False,
            architecture=None if stored.notes is None else stored.notes.architecture,
        )
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise DataError(
            "VSE-N050", "{path}: its tensors are not those of its network; import the weights again.", path=path
        ) from error
    return network.eval()


_MOST_NAMES = 60
_COUNTER = "num_batches_tracked"
"""A count that BatchNorm stores and does not use; files from before 2018 have none."""


@dataclass(frozen=True)
class Recognised:
    """The network as recognised from a file.

    spec: `name` and the hyperparameters that the file determines, under our names. modules: our module or tensor -> the
    released one; if there are several, their tensors are stacked along the first axis. rows: our module -> the only row
    that is used of the released tensors. unused: start of a released name -> why we do not need it. absent: our tensor
    -> its value where a file lacks it. assumed: hyperparameters in `spec` that neither weights nor settings of the file
    determine. spare: our modules that a training started from these weights may omit.
    """

    spec: Mapping[str, Any]
    modules: Mapping[str, str | tuple[str, ...]]
    width: int
    vocabulary_size: int
    regions: int = 1
    rows: Mapping[str, int] = field(default_factory=dict)
    unused: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, float] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()


def assumed_settings(released: Released, spec: Mapping[str, Any], named: Mapping[str, str]) -> tuple[str, ...]:
    """Hyperparameters of a spec that no setting of the file determines. named: hyperparameter -> setting."""
    return tuple(name for name, setting in named.items() if name in spec and setting not in released.settings)


def mapped_weights(
    network: nn.Module, recognised: Recognised, released: Released, *, source: str
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All weights of a network under our names, and the unused released names with the reason.

    network: provides names, shapes and types; may be on the meta device. DataError with the names that are missing,
    unexpected or of another shape, or with the first tensor whose values no network could use.
    """
    tensors = released.tensors
    weights: dict[str, Tensor] = {}
    taken: set[str] = set()
    missing, misshapen, flawed = [], [], []
    for name, target in network.state_dict().items():
        names, row = _released_names(name, recognised.modules), recognised.rows.get(name.rpartition(".")[0])
        found = [tensors[each] if row is None else tensors[each][row : row + 1] for each in names if each in tensors]
        taken.update(names)
        if len(found) < len(names):
            value = 0.0 if name.endswith(_COUNTER) else recognised.absent.get(name)
            if value is None:
                missing += [each for each in names if each not in tensors]
            else:
                weights[name] = torch.full(target.shape, value, dtype=target.dtype)
            continue
        stacked = found[0] if len(found) == 1 else _stacked(found)
        if stacked is None or _without_ones(stacked) != _without_ones(target):
            shapes = " + ".join(str(tuple(each.shape)) for each in found)
            misshapen.append(f"{' + '.join(names)} is {shapes}, need {tuple(target.shape)}")
            continue
        weights[name] = stacked.reshape(target.shape).to(target.dtype).contiguous().clone()
        flaw = _flaw(stacked, weights[name])
        if flaw is not None:
            flawed.append((" + ".join(names), flaw))
    left = sorted(tensors.keys() - taken)
    reasons = {each: _reason(each, recognised.unused) for each in left}
    unexpected = [each for each, reason in reasons.items() if reason is None]
    if missing or unexpected or misshapen:
        raise DataError(
            "VSE-N045", "{path}: not the weights of {source}: {missing} names missing, {unexpected} unexpected, "
            "{misshapen} of another shape; check --from, or get the whole file.{names}", path=released.path,
            source=source, missing=len(missing), unexpected=len(unexpected), misshapen=len(misshapen),
            names=_listed(missing, unexpected, misshapen),
        )
    if flawed:
        name, flaw = flawed[0]
        raise DataError(
            "VSE-N039", "{path}: {name} {flaw} (tensors with such a flaw: {count}); download it again, or take another "
            "checkpoint.", path=released.path, name=name, flaw=flaw, count=len(flawed),
        )
    return weights, {each: reason for each, reason in reasons.items() if reason is not None}


def _released_names(name: str, modules: Mapping[str, str | tuple[str, ...]]) -> tuple[str, ...]:
    """Released names of one of our tensors. The longest entry of `modules` that equals or contains it decides."""
    words = name.split(".")
    for length in range(len(words), 0, -1):
        module = ".".join(words[:length])
        if module not in modules:
            continue
        rest = ".".join(words[length:])
        rest = WEIGHT_NORM.get(rest, rest)
        theirs = modules[module]
        return tuple(f"{each}.{rest}" if rest else each for each in ((theirs,) if isinstance(theirs, str) else theirs))
    raise KeyError(f"no released name is known for {name}")


def _stacked(tensors: Sequence[Tensor]) -> Tensor | None:
    same = {tuple(each.shape[1:]) for each in tensors}
    return torch.cat(list(tensors)) if len(same) == 1 and all(each.dim() for each in tensors) else None


def _flaw(released: Tensor, ours: Tensor) -> str | None:
    """Why a network could not use the values: integers instead of floats, or values not finite after conversion."""
    if ours.is_floating_point() and not released.is_floating_point():
        return f"holds {str(released.dtype).removeprefix('torch.')}, need floats"
    return None if ours.isfinite().all() else "holds numbers that are not finite"


def _without_ones(tensor: Tensor) -> list[int]:
    """A convolution of width 1 is a linear map, (8, 1) numbers are 8: axes of length 1 do not matter."""
    return [length for length in tensor.shape if length != 1]


def _reason(name: str, unused: Mapping[str, str]) -> str | None:
    return next((reason for start, reason in unused.items() if name.startswith(start)), None)


def _listed(missing: list[str], unexpected: list[str], misshapen: list[str]) -> str:
    """A line for each of these that has names."""
    lines = [""]
    for title, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", misshapen)):
        if names:
            more = f", and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
            lines.append(f"{title}: {', '.join(names[:_MOST_NAMES])}{more}")
    return "\n".join(lines)
