"""Karpathy's layout: one JSON file with splits, file names and sentences (Flickr8k, Flickr30k, MS-COCO)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vsetune.config.sources.recipe import KarpathySource, expand_path
from vsetune.data.making.raw import (
    FileImage,
    RawDataset,
    RawImage,
    RawSplit,
    captioned_images,
    file_named,
    refuse_missing,
    require_folder,
    require_text,
)
from vsetune.data.stored import storage
from vsetune.data.stored.plain_files import is_text, parse_json
from vsetune.data.stored.storage import NAME_TWICE, NOT_IN_IT
from vsetune.errors import DataError, Message, one_line

_ENTRY_VALUE = Message("VSE-D059", "{where}: {key} is {found}, need {need}; fix the file.")


def read_karpathy(source: KarpathySource) -> RawDataset:
    """Read dataset_*.json. DataError for an entry without file name, split or sentences, or without its image."""
    path = Path(expand_path(source.captions, key="source.captions"))
    folder = require_folder(source.images, key="source.images")
    entries = _entries(path)
    names: dict[str, list[str]] = {}
    captions: dict[str, list[str]] = {}
    files: dict[str, Path] = {}
    left_out = 0
    for number, entry in enumerate(entries):
        split, name, texts = _fields(entry, where=f"{path}: images.{number}")
        if split.lower() == "restval":
            if source.restval == "leave_out":
                left_out += 1
                continue
            split = "train"
        if name in captions:
            raise DataError(NAME_TWICE(where=f"{path}: images.{number}", name=name))
        names.setdefault(split, []).append(name)
        captions[name] = texts
        files[name] = _file(folder, entry, name, where=f"{path}: images.{number}")
    notes = [f"{path.name}: left out {left_out} images of the split restval"] if left_out else []
    missing = [file for file in files.values() if not file.is_file()]
    refuse_missing(missing, of=len(files), need="file", where=f"source.images: {path.name}")
    splits = {}
    for split, listed in names.items():
        pairs = captioned_images(listed, captions, split=split, notes=notes)
        splits[split] = RawSplit([RawImage(name, texts, FileImage(files[name])) for name, texts in pairs])
    return RawDataset(splits, notes)


def _entries(path: Path) -> list[Any]:
    text = require_text(path, key="source.captions")
    plain = parse_json(text, where=f"source.captions: {path}", fix="fetch the file again.")
    entries = plain.get("images") if isinstance(plain, dict) else None
    if not isinstance(entries, list) or not entries:
        raise DataError(NOT_IN_IT(where=f"source.captions: {path}", need="list `images`"))
    return entries


def _fields(entry: Any, *, where: str) -> tuple[str, str, list[str]]:
    """(split, file name, captions). A missing `sentences` list is an image without captions."""
    if not isinstance(entry, dict):
        raise DataError(_ENTRY_VALUE(where=where, key="entry", found=_shown(entry), need="an object"))
    split, name = _text(entry, "split", where=where), _text(entry, "filename", where=where)
    sentences = entry.get("sentences", [])
    if not isinstance(sentences, list):
        raise DataError(_ENTRY_VALUE(where=where, found=_shown(sentences), key="sentences", need="a list"))
    return split, name, [_caption(each, where=where, number=number) for number, each in enumerate(sentences)]


def _caption(sentence: Any, *, where: str, number: int) -> str:
    if not isinstance(sentence, dict):
        raise DataError(_ENTRY_VALUE(
            where=where, key=f"sentences.{number}", found=_shown(sentence), need="an object with raw",
        ))
    if "raw" not in sentence:
        raise DataError(_ENTRY_VALUE(
            where=f"{where}: sentences.{number}", key="raw", found="missing", need="an object with raw",
        ))
    if not is_text(sentence["raw"]):
        raise DataError(_ENTRY_VALUE(where=where, found=_shown(sentence["raw"]), key="raw", need="text"))
    return str(sentence["raw"])


def _text(entry: dict[str, Any], key: str, *, where: str) -> str:
    if key not in entry:
        raise DataError(_ENTRY_VALUE(
            where=where, key=key, found="missing", need="split, filename and sentences with raw",
        ))
    if not is_text(entry[key]) or not entry[key]:
        raise DataError(_ENTRY_VALUE(where=where, key=key, found=_shown(entry[key]), need="text"))
    return str(entry[key])


def _shown(value: Any) -> str:
    return one_line(repr(value))


def _file(folder: Path, entry: dict[str, Any], name: str, *, where: str) -> Path:
    below = _text(entry, "filepath", where=where) if entry.get("filepath") else ""
    plain, whole = name.replace("\\", "/"), f"{below or '.'}/{name}".replace("\\", "/")
    if not storage.is_inside(plain) or not storage.is_inside(whole):
        raise DataError(
            "VSE-D008", "{file} leads out of its folder, need the name of a file in it",
            file=f"{where}: {one_line(whole)}",
        )
    inside = file_named(folder, whole)
    return inside if inside.is_file() else file_named(folder, plain)
