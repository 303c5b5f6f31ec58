"""Reads a weights file and the vocabulary of a released implementation: tensors and plain values, never code."""

from __future__ import annotations

import argparse
import json
import pickle
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
                "VSE-N044", "{path}: trained with {setting} {got}, need one of {known}: no network here is like it.",
                path=self.path, setting=setting, got=value, known=known,
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
        raise DataError(
            "VSE-N034", "{path}: not {what}, or damaged; download it again.", path=path, what="a weights file"
        ) from error
    if not found:
        need = "a state dict or a training checkpoint with `model`"
        raise DataError("VSE-N036", "{path}: holds no {what}, need {need}.", path=path, what="tensors", need=need)
    for name, tensor in found.items():
        if not tensor.numel():
            raise DataError(
                "VSE-N037", "{path}: {name} holds no numbers, shape {shape}; download it again.", path=path, name=name,
                shape=tuple(tensor.shape),
            )
        if tensor.is_meta or tensor.layout is not torch.strided or tensor.is_complex() or tensor.is_quantized:
            raise DataError(
                "VSE-N038", "{path}: {name} is {kind}, need dense real numbers; save it as such.", path=path, name=name,
                kind=_kind(tensor),
            )
    return Released(path, {_plain_name(name, renamed): tensor for name, tensor in found.items()}, settings)


def _content(path: Path) -> Any:
    if not path.is_file():
        raise DataError(
            "VSE-N033", "{path}: no such file; need {need}, check the path.", path=path,
            need="a weights file (.pth, .pth.tar, .safetensors)",
        )
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path, device="cpu")
        with warnings.catch_warnings(), torch.serialization.safe_globals(_PLAIN_DATA):
            warnings.filterwarnings("ignore", "Detected pickle protocol")  # what cannot be read is refused below
            return torch.load(path, map_location="cpu", weights_only=True)
    except DAMAGED as error:
        code = re.search(r"GLOBAL ([\w.]+)", str(error))
        if code:
            need = "tensors and plain values; save its state dicts alone, with the library that made it"
            raise DataError(
                "VSE-N035", "{path}: holds an object of {kind}, which could run code; need {need}.", path=path,
                kind=code[1], need=need,
            ) from error
        # The message of torch is not repeated: it recommends reading the file with its code.
        raise DataError(
            "VSE-N034", "{path}: not {what}, or damaged; download it again.", path=path, what="a weights file"
        ) from error


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


_CLASS = "Vocabulary"
_HOMES = ("vocab", "__main__", "datasets.vocab")
"""Modules that contain the class: imported, defined in the script itself, PCME's package."""
_SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")
UNKNOWN = "<unknown>"
_RELEASED = {UNKNOWN: "<unk>"}
"""Our name of a special word -> the released one. The others have equal names; <mask> is missing there."""


class _Refused(pickle.UnpicklingError):
    """An object that is not plain data."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name == _CLASS and module in _HOMES:
            return type(_CLASS, (), {})  # new for every file: what a file does to it ends with it
        raise _Refused(f"{module}.{name}")


def read_words(path: Path) -> tuple[str, ...]:
    """words[i] is the word of row i. DataError in one line for a file that is no vocabulary, or contains other
    objects."""
    if not path.is_file():
        raise DataError(
            "VSE-N033", "{path}: no such file; need {need}, check the path.", path=path,
            need="the vocabulary of the released model (.json or .pkl)",
        )
    try:
        ids = _ids(path)
    except _Refused as error:
        need = "a vocabulary of plain words and numbers"
        raise DataError(
            "VSE-N035", "{path}: holds an object of {kind}, which could run code; need {need}.", path=path, kind=error,
            need=need,
        ) from error
    except (*DAMAGED, RecursionError, MemoryError) as error:
        raise DataError(
            "VSE-N034", "{path}: not {what}, or damaged; download it again.", path=path,
            what="a vocabulary (.json, .pkl)",
        ) from error
    if not isinstance(ids, Mapping):
        need = "the vocabulary of a released model"
        raise DataError("VSE-N036", "{path}: holds no {what}, need {need}.", path=path, what="`word2idx`", need=need)
    return _in_order(path, ids)


def rows_of(words: Sequence[str], released: Sequence[str]) -> list[int | None]:
    """For each of our words the row in a released vocabulary, special words included; None for a word that it lacks."""
    rows = {word: row for row, word in enumerate(released)}
    return [rows.get(_RELEASED.get(word, word)) for word in words]


def _ids(path: Path) -> Any:
    if path.suffix == ".json":
        content = json.loads(path.read_text(encoding="utf-8"))
        return content.get("word2idx") if isinstance(content, Mapping) else None
    with path.open("rb") as stream:
        held = _PlainUnpickler(stream, encoding="utf-8").load()  # many were written by Python 2
    return held.get("word2idx") if isinstance(held, Mapping) else getattr(held, "word2idx", None)


def _in_order(path: Path, ids: Mapping[Any, Any]) -> tuple[str, ...]:
    is_plain = all(type(word) is str and type(number) is int for word, number in ids.items())
    if not is_plain or sorted(ids.values()) != list(range(len(ids))):
        raise DataError(
            "VSE-N040", "{path}: `word2idx` does not number its words 0, 1, 2, ... once each; download it again.",
            path=path,
        )
    missing = [word for word in _SPECIAL if word not in ids]
    if missing:
        raise DataError(
            "VSE-N041", "{path}: `word2idx` has no {word}, need {need}; get the released vocabulary.", path=path,
            word=missing[0], need=", ".join(_SPECIAL),
        )
    return tuple(sorted(ids, key=ids.__getitem__))
