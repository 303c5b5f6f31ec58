"""Captions in one table, one list of image names per split, images in folders or tar files (Flickr8k)."""

from __future__ import annotations

import csv
import glob
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from vsetune.config.sources.recipe import CaptionTableSource, expand_path
from vsetune.data import messages
from vsetune.data.making.raw import (
    FileImage,
    ImageBytes,
    RawDataset,
    RawImage,
    RawSplit,
    captioned_images,
    files_below,
    note_shared_images,
    read_names,
    require_text,
    tar_images,
)
from vsetune.errors import DataError, one_line


def read_caption_table(source: CaptionTableSource) -> RawDataset:
    """Read a caption table. DataError for a listed image without a file or with two different ones, or a table that is
    neither CSV nor token."""
    table = Path(expand_path(source.captions, key="source.captions"))
    captions = parse_captions(require_text(table, key="source.captions"), place=str(table))
    places = find_images(source.images)
    notes: list[str] = []
    splits: dict[str, RawSplit] = {}
    listed: set[str] = set()
    for split, list_path in source.lists.items():
        key = f"source.lists.{split}"
        names = read_names(Path(expand_path(list_path, key=key)), key=key)
        listed.update(names)
        _refuse_missing(names, places, key=key)
        pairs = captioned_images(names, captions, split=split, notes=notes)
        splits[split] = RawSplit([RawImage(name, texts, _the_one(places[name], name)) for name, texts in pairs])
    note_shared_images(splits, notes)
    outside = [name for name in captions if name not in listed]
    if outside:
        notes.append(f"{table.name}: {len(outside)} images with captions are in no split list, e.g. {outside[0]}")
    return RawDataset(splits, notes)


def parse_captions(text: str, *, place: str) -> dict[str, list[str]]:
    """Captions by image name, in order of the table. Reads `image,caption` CSV and `name#0<tab>caption` lines."""
    first = text.split("\n", 1)[0].strip().lower().replace(" ", "").replace('"', "")
    if first in {"image,caption", "image_name,caption", "filename,caption"}:
        return _parse_csv(text, place=place)
    if "\t" in text.split("\n", 1)[0]:
        return _parse_tokens(text, place=place)
    raise DataError(messages.TABLE_LINE(
        file=place, line=1, found=repr(first[:60]), need="the header image,caption or lines name#0<tab>caption",
    ))


def _parse_csv(text: str, *, place: str) -> dict[str, list[str]]:
    captions: dict[str, list[str]] = {}
    rows = csv.reader(io.StringIO(text), strict=True)
    begins = 1
    try:
        next(rows)
        begins = 2
        for row in rows:
            if not row:
                begins = rows.line_num + 1
                continue
            if len(row) != 2:
                raise DataError(messages.TABLE_LINE(
                    file=place, line=rows.line_num, found=f"{len(row)} fields",
                    need="2 (image,caption), a caption with commas in quotes",
                ))
            captions.setdefault(row[0].strip(), []).append(row[1].strip())
            begins = rows.line_num + 1
    except csv.Error as error:
        raise DataError(messages.TABLE_LINE(
            file=place, line=begins, found=f"no CSV ({one_line(error)})",
            need='captions with quotes or commas in quotes, quotes in them doubled ("")',
        )) from error
    return captions


def _parse_tokens(text: str, *, place: str) -> dict[str, list[str]]:
    captions: dict[str, list[str]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        name, tab, caption = line.partition("\t")
        if not tab:
            raise DataError(messages.TABLE_LINE(file=place, line=number, found="no tab", need="name#0<tab>caption"))
        captions.setdefault(name.rpartition("#")[0] or name, []).append(caption.strip())
    return captions


def find_images(places: list[str]) -> dict[str, list[ImageBytes]]:
    """All images of every base name in the folders and tar files of the recipe. DataError when one is missing."""
    found: dict[str, list[ImageBytes]] = {}
    for index, place in enumerate(places):
        key = f"source.images.{index}"
        pattern = expand_path(place, key=key)
        paths = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
        existing = [Path(path) for path in paths if Path(path).exists()]
        if not existing:
            raise DataError(messages.NOTHING_AT(key=key, path=pattern))
        for path in existing:
            for name, image in _images_of(path):
                found.setdefault(name, []).append(image)
    return found


def _images_of(path: Path) -> Iterable[tuple[str, ImageBytes]]:
    if path.is_dir():
        return [(file.name, FileImage(file)) for file in files_below(path)]
    return [(Path(image.member).name, image) for image in tar_images(path)]


def _the_one(images: list[ImageBytes], name: str) -> ImageBytes:
    """The last image; DataError unless all are equal, since the captions do not identify one of them."""
    *others, image = images
    for other in others:
        if other.size != image.size or other.read() != image.read():
            raise DataError(messages.IMAGE_AMBIGUOUS(image=name, one=other.place, other=image.place))
    return image


def _refuse_missing(names: list[str], places: Mapping[str, list[ImageBytes]], *, key: str) -> None:
    missing = [name for name in names if name not in places]
    if missing:
        raise DataError(messages.IMAGES_MISSING(
            where=key, missing=len(missing), listed=len(names), first=missing[0],
            need="file of that name, without folders",
        ))
