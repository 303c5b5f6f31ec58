"""IAPR TC-12 as distributed: one tagged .eng file per image, latin-1; its description is one caption."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from vsetune.config.sources.recipe import IaprSource, SplitShares
from vsetune.data.making.raw import (
    FileImage,
    RawDataset,
    RawImage,
    RawSplit,
    captioned_images,
    file_named,
    files_below,
    note_shared_images,
    read_lists,
    refuse_missing,
    require_folder,
    require_text,
)
from vsetune.data.stored import storage
from vsetune.data.stored.plain_files import composed
from vsetune.data.stored.storage import NAME_TWICE, NOT_IN_IT
from vsetune.errors import DataError, one_line

_TAG = r"<{0}>(.*?)</{0}>"


def read_iapr(source: IaprSource) -> RawDataset:
    """Read annotation files. An id is the image's path without `images/` and suffix, such as 00/25.

    DataError for an annotation without IMAGE, an image with two annotations or without a file, or a listed id without
    annotation.
    """
    annotations = require_folder(source.annotations, key="source.annotations")
    images = require_folder(source.images, key="source.images")
    captions: dict[str, list[str]] = {}
    files: dict[str, Path] = {}
    for path in files_below(annotations):
        if path.suffix != ".eng":
            continue
        place, description = parse_annotation(path)
        if not storage.is_inside(place):
            raise DataError(
                "VSE-D008", "{file} leads out of its folder, need the name of a file in it",
                file=f"{path}: IMAGE: {one_line(place)}",
            )
        below = PurePosixPath(composed(place).removeprefix("images/"))
        if not below.name:
            raise DataError(NOT_IN_IT(where=path, need="<IMAGE>images/00/25.jpg</IMAGE>"))
        id_ = str(below.with_suffix(""))
        if id_ in captions:
            raise DataError(NAME_TWICE(where=path, name=f"IMAGE {one_line(place)}"))
        captions[id_] = [description] if description else []
        inside = file_named(images, place)
        files[id_] = inside if inside.is_file() else file_named(images, place.removeprefix("images/"))
    if not captions:
        raise DataError(NOT_IN_IT(where=f"source.annotations: {annotations}", need=".eng files"))
    notes: list[str] = []
    splits: dict[str, RawSplit] = {}
    for split, ids in _split_ids(source, captions, notes).items():
        unknown = [id_ for id_ in ids if id_ not in files]
        refuse_missing(unknown, of=len(ids), need="annotation", where=f"split {split}")
        missing = [files[id_] for id_ in ids if not files[id_].is_file()]
        refuse_missing(missing, of=len(ids), need="file", where=f"split {split}")
        pairs = captioned_images(ids, captions, split=split, notes=notes)
        splits[split] = RawSplit([RawImage(id_, texts, FileImage(files[id_])) for id_, texts in pairs])
    note_shared_images(splits, notes)
    return RawDataset(splits, notes)


def parse_annotation(path: Path) -> tuple[str, str]:
    """(image path, description) of one .eng file; sentences of a description are joined by spaces."""
    text = _readable(require_text(path, key="source.annotations", encoding="latin-1"))
    image = _tag(text, "IMAGE")
    if not image:
        raise DataError(NOT_IN_IT(where=path, need="<IMAGE>images/00/25.jpg</IMAGE>"))
    return image, _tag(text, "DESCRIPTION")


def _readable(text: str) -> str:
    """The text as intended, for a file that was converted to UTF-8: read as latin-1 each accent is two other letters.
    """
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return text


def _tag(text: str, name: str) -> str:
    found = re.search(_TAG.format(name), text, re.DOTALL | re.IGNORECASE)
    return " ".join(found[1].split()) if found else ""


def _split_ids(source: IaprSource, captions: Mapping[str, list[str]], notes: list[str]) -> dict[str, list[str]]:
    if source.shares is not None:
        described = [id_ for id_, texts in captions.items() if texts]
        bare = [id_ for id_, texts in captions.items() if not texts]
        if bare:
            notes.append(f"left out {len(bare)} images without a caption, the first is {bare[0]}")
        return draw_splits(described, source.shares)
    assert source.lists is not None
    splits = {}
    for split, key, names in read_lists(source.lists):
        ids = [name.removeprefix("images/").removesuffix(".jpg") for name in names]
        twice = next((id_ for id_, count in Counter(ids).items() if count > 1), None)
        if twice is not None:
            raise DataError(NAME_TWICE(where=f"{key}: {source.lists[split]}", name=twice))
        splits[split] = ids
    listed = {id_ for ids in splits.values() for id_ in ids}
    outside = [id_ for id_ in captions if id_ not in listed]
    if outside:
        notes.append(f"{len(outside)} annotated images are in no split list, e.g. {outside[0]}")
    return splits


def draw_splits(ids: list[str], shares: SplitShares) -> dict[str, list[str]]:
    """Split a seeded shuffle of the ids; a requested share has at least one image."""
    mixed = sorted(ids)
    random.Random(f"splits/{shares.seed}").shuffle(mixed)
    validation = max(1, round(len(mixed) * shares.validation))
    test = max(1, round(len(mixed) * shares.test)) if shares.test else 0
    splits = {"train": mixed[validation + test :], "validation": mixed[:validation]}
    return {**splits, "test": mixed[validation : validation + test]} if test else splits
