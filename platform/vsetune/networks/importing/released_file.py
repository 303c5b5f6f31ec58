"""Reads a weights file of a released implementation. Tensors and plain values are read, never code.

Such a file was written by `torch.save`: {"model": [state dict, ...], "opt": argparse.Namespace, "epoch": ...}, a bare
state dict, or the same tensors as safetensors. It is unpickled with `weights_only=True`. Two kinds of plain data beside
tensors are allowed by name: argparse.Namespace, which holds the settings, and numpy's numbers, whose values are
dropped. Any other object is refused.
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from vsetune.errors import DataError
from vsetune.networks.parts.damaged import DAMAGED

_SETTINGS = ("opt", "args", "config")
WEIGHT_NORM = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}
"""Names of weight normalisation in torch today, and in released files."""


class _Dropped:
    """Replaces a numpy number and its type."""

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, _: Any) -> None:
        pass


_NUMPY_NUMBERS = ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar", "numpy.dtype")
_PLAIN_DATA: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
    argparse.Namespace, *((_Dropped, name) for name in _NUMPY_NUMBERS),
]


@dataclass(frozen=True)
class Released:
    """tensors: by name, `img_enc.fc.weight`. settings: plain values of the training's options; empty if it has none."""

    path: Path
    tensors: Mapping[str, Tensor]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def size(self, name: str, axis: int, otherwise: int) -> int:
        """Length of an axis. `otherwise` is used for a missing tensor, which is reported later."""
        shape = self.tensors[name].shape if name in self.tensors else ()
        return shape[axis] if axis < len(shape) else otherwise

    def has(self, prefix: str) -> bool:
        """Whether the name of any tensor starts so."""
        return any(name.startswith(prefix) for name in self.tensors)

    def chosen(self, setting: str, meanings: Mapping[Any, Any], otherwise: Any) -> Any:
        """Our name for the value of a setting, `otherwise` if the file does not have it. DataError for other values."""
        if setting not in self.settings:
            return otherwise
        value = self.settings[setting]
        if value not in meanings:
            known = ", ".join(str(each) for each in meanings)
            raise DataError(
                f"{self.path}: trained with {setting} {value}, need one of {known}: no network here is like it."
            )
        return meanings[value]

    def number(self, setting: str, otherwise: float) -> float:
        """The value of a setting, `otherwise` if the file does not hold a number."""
        value = self.settings.get(setting)
        return value if isinstance(value, (int, float)) else otherwise


def read_released(path: Path, *, parts: Sequence[str], renamed: Mapping[str, str]) -> Released:
    """DataError in one line for a file that is missing, damaged, without tensors, or with more than plain data.

    parts: names for the state dicts of a list, in its order. renamed: parts of names that changed between versions of
    the implementation. `module.` of torch's DataParallel is left out.
    """
    content = _content(path)
    model = content["model"] if isinstance(content, Mapping) and "model" in content else content
    settings: dict[str, Any] = {}
    try:
        found = dict(_tensors(model, "", parts))
        if model is not content:
            found |= _tensors(content.get("criterion"), "criterion.", parts)
            settings = _settings(content)
    except RecursionError as error:  # a list that holds itself
        raise DataError(f"{path}: not a weights file, or damaged; download it again.") from error
    if not found:
        raise DataError(f"{path}: holds no tensors, need a state dict or a training checkpoint with `model`.")
    for name, tensor in found.items():
        if not tensor.numel():
            raise DataError(f"{path}: {name} holds no numbers, shape {tuple(tensor.shape)}; download it again.")
        if tensor.is_meta or tensor.layout is not torch.strided or tensor.is_complex() or tensor.is_quantized:
            raise DataError(f"{path}: {name} is {_kind(tensor)}, need dense real numbers; save it as such.")
    return Released(path, {_plain_name(name, renamed): tensor for name, tensor in found.items()}, settings)


def _content(path: Path) -> Any:
    if not path.is_file():
        raise DataError(f"{path}: no such file; need a weights file (.pth, .pth.tar, .safetensors).")
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path, device="cpu")
        with warnings.catch_warnings(), torch.serialization.safe_globals(_PLAIN_DATA):
            warnings.filterwarnings("ignore", "Detected pickle protocol")  # what cannot be read is refused below
            return torch.load(path, map_location="cpu", weights_only=True)
    except DAMAGED as error:
        code = re.search(r"GLOBAL ([\w.]+)", str(error))
        if code:
            raise DataError(
                f"{path}: holds an object of {code[1]}, which could run code; need tensors and plain values; save its "
                "state dicts alone, with the library that made it."
            ) from error
        # The message of torch is not repeated: it recommends reading the file with its code.
        raise DataError(f"{path}: not a weights file, or damaged; download it again.") from error


def _tensors(node: Any, prefix: str, parts: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
    if isinstance(node, Tensor):
        yield prefix.removesuffix("."), node
    elif isinstance(node, Mapping):
        for key, value in node.items():
            yield from _tensors(value, f"{prefix}{key}.", parts)
    elif isinstance(node, (list, tuple)):
        for number, value in enumerate(node):
            name = parts[number] if number < len(parts) else f"part{number + 1}"
            yield from _tensors(value, f"{prefix}{name}.", parts)


def _kind(tensor: Tensor) -> str:
    if tensor.is_meta:
        return "a shape without numbers (of the meta device)"
    named = tensor.dtype if tensor.layout is torch.strided else tensor.layout
    return f"a tensor of {str(named).removeprefix('torch.')}"


def _settings(content: Mapping[str, Any]) -> dict[str, Any]:
    for key in _SETTINGS:
        held = content.get(key)
        plain = vars(held) if isinstance(held, argparse.Namespace) else held
        if isinstance(plain, Mapping):
            of_model = plain.get("model")
            plain = of_model if isinstance(of_model, Mapping) else plain
            return {str(name): value for name, value in plain.items() if isinstance(value, (bool, int, float, str))}
    return {}


def _plain_name(name: str, renamed: Mapping[str, str]) -> str:
    name = ".".join(renamed.get(word, word) for word in name.split(".") if word != "module")
    for new, old in WEIGHT_NORM.items():
        if name.endswith(new):
            return name.removesuffix(new) + old
    return name
