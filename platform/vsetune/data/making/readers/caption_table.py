"""Captions in one table, one list of image names per split, images in folders or tar files (Flickr8k)."""

from __future__ import annotations

import csv
import glob
import io
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from vsetune.config.sources.recipe import CaptionTableSource, expand_path
from vsetune.data.making.raw import (
    FileImage,
    ImageBytes,
    RawDataset,
    RawImage,
    RawSplit,
    captioned_images,
    files_below,
    note_shared_images,
    read_lists,
    refuse_missing,
    require_text,
    tar_images,
)
from vsetune.data.stored.plain_files import composed
from vsetune.data.stored.storage import TABLE_LINE
from vsetune.errors import DataError, one_line


def read_caption_table(source: CaptionTableSource) -> RawDataset:
    """Read a caption table. DataError for a listed image without a file or with two different ones, or a table that is
    neither CSV nor token."""
    table = Path(expand_path(source.captions, key="source.captions"))
    notes: list[str] = []
    captions = parse_captions(require_text(table, key="source.captions"), place=str(table), notes=notes)
    places = find_images(source.images)
    splits: dict[str, RawSplit] = {}
    listed: set[str] = set()
    for split, key, names in read_lists(source.lists):
        listed.update(names)
        missing = [name for name in names if name not in places]
        refuse_missing(missing, of=len(names), need="file of that name, without folders", where=key)
        pairs = captioned_images(names, captions, split=split, notes=notes)
        splits[split] = RawSplit([RawImage(name, texts, _the_one(places[name], name)) for name, texts in pairs])
    note_shared_images(splits, notes)
    outside = [name for name in captions if name not in listed]
    if outside:
        notes.append(f"{table.name}: {len(outside)} images with captions are in no split list, e.g. {outside[0]}")
    return RawDataset(splits, notes)


_NAMES = {"image", "image_name", "filename", "file_name", "file", "name"}
_CAPTIONS = {"caption", "comment"}
"""Columns that are read, by their names in published tables; Kaggle's Flickr30k has a `comment`."""
_NUMBER = re.compile(r"#\w*$")
"""Number of a caption behind the name of its image."""
_TOKENS = "lines name#0<tab>caption or name<tab>0<tab>caption"


def parse_captions(text: str, *, place: str, notes: list[str]) -> dict[str, list[str]]:
    """Captions by image name, in order of the table; a name as `composed`. Reads CSV whose header names an image and a
    caption, its columns parted by commas, semicolons, tabs or bars, and lines `name#0<tab>caption`,
    `name<tab>0<tab>caption` or `name<tab>caption`."""
    first = text.split("\n", 1)[0]
    for delimiter in (",", "\t", ";", "|"):
        header = [column.strip(' "').lower() for column in first.split(delimiter)]
        names, captions = ([n for n, column in enumerate(header) if column in of] for of in (_NAMES, _CAPTIONS))
        if len(names) == len(captions) == 1:
            unread = [each for n, each in enumerate(header) if each and n not in {names[0], captions[0]}]
            if unread:
                notes.append(f"{Path(place).name}: columns that are not read: {', '.join(unread)}")
            rows = _csv_rows(text, delimiter, columns=len(header), place=place)
            return _by_name((row[names[0]], row[captions[0]]) for _, row in itertools.islice(rows, 1, None))
    if "\t" in first:
        return _by_name(_tokens(text, place=place))
    raise DataError(TABLE_LINE(
        file=place, line=1, found=repr(first[:60]), need=f"the header image,caption or {_TOKENS}",
    ))


def _by_name(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    captions: dict[str, list[str]] = {}
    for name, caption in pairs:
        captions.setdefault(composed(name), []).append(caption)
    return captions


def _csv_rows(text: str, delimiter: str, *, columns: int | None, place: str) -> Iterator[tuple[int, list[str]]]:
    """(number of the last line, fields) of each row that is not empty."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    begins = 1
    try:
        for row in rows:
            if row and columns not in {None, len(row)}:
                raise DataError(TABLE_LINE(
                    file=place, line=rows.line_num, found=f"{len(row)} fields",
                    need=f"{columns} as in the header, a caption with {delimiter!r} in quotes",
                ))
            if row:
                yield rows.line_num, row
            begins = rows.line_num + 1
    except csv.Error as error:
        raise DataError(TABLE_LINE(
            file=place, line=begins, found=f"no CSV ({one_line(error)})",
            need='captions with quotes or commas in quotes, quotes in them doubled ("")',
        )) from error


def _tokens(text: str, *, place: str) -> Iterator[tuple[str, str]]:
    rows: Iterable[tuple[int, list[str]]] = (
        _csv_rows(text, "\t", columns=None, place=place) if text.startswith('"')
        else ((number, line.split("\t")) for number, line in enumerate(text.split("\n"), 1) if line.strip())
    )
    is_numbered: bool | None = None
    for number, (name, *fields) in rows:
        has_number = len(fields) > 1 and fields[0].strip().isdecimal()
        is_numbered = has_number if is_numbered is None else is_numbered
        caption, *more = fields[is_numbered:] or [""]
        if not fields or is_numbered != has_number or any(each.strip() for each in more):
            found = f"{1 + len(fields)} fields" if fields else "no tab"
            raise DataError(TABLE_LINE(file=place, line=number, found=found, need=f"{_TOKENS}, all alike"))
        yield _NUMBER.sub("", name.strip()) or name, _unquoted(caption)


def _unquoted(caption: str) -> str:
    """Without the quotes that pandas puts around a caption that has quotes, which it doubles."""
    inner = caption.strip()[1:-1].replace('""', "\0")
    is_quoted = "\0" in inner and '"' not in inner and caption.strip() == f'"{caption.strip()[1:-1]}"'
    return inner.replace("\0", '"') if is_quoted else caption


def find_images(places: list[str]) -> dict[str, list[ImageBytes]]:
    """All images of every base name in the folders and tar files of the recipe. DataError when one is missing."""
    found: dict[str, list[ImageBytes]] = {}
    for index, place in enumerate(places):
        key = f"source.images.{index}"
        pattern = expand_path(place, key=key)
        paths = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
        existing = [Path(path) for path in paths if Path(path).exists()]
        if not existing:
            raise DataError(
                "VSE-D049", "{key}: {path}: nothing there, need a folder or tar files; check the path.", key=key,
                path=pattern,
            )
        for path in existing:
            for name, image in _images_of(path):
                found.setdefault(composed(name), []).append(image)
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
            raise DataError(
                "VSE-D056", "source.images: {image} is the name of two images, {one} and {other}; rename one there, in "
                "the captions and in its list, or name other folders.", image=name, one=other.place, other=image.place,
            )
    return image
