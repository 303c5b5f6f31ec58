"""Images of a split with their captions for people: single pictures, and a contact sheet."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vsetune.config.sources.trial_inputs import TextModel
from vsetune.data.batches.pixels import decoded
from vsetune.data.captions.word_pieces import WordPieces
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.shards import Photograph, Record, read_some
from vsetune.data.stored.vocabulary import SPECIAL_WORDS, with_case
from vsetune.errors import DataError, StorageError
from vsetune.home.whole_files import whole_file

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_THUMBNAIL = 220
_TEXT_WIDTH = 420
_LINE_LETTERS = 48
_MARGIN = 16
_FONT_SIZE = 15
_LINE = 20
_INK, _FAINT, _PAPER, _RULE = (25, 25, 30), (120, 120, 130), (255, 255, 255), (225, 225, 230)


def contact_sheet(path: str, split: str, output: Path, *, count: int) -> int:
    """Draw up to count images of a split, spread over it, two a row. output: .png or .jpg. Returns their number.

    DataError: no such split, or images are not stored. StorageError: the picture cannot be written.
    """
    if output.suffix.lower() not in {".png", ".jpg", ".jpeg"}:
        raise StorageError(
            "VSE-D090", "{file}: ends in {suffix}, need .png or .jpg.", file=output, suffix=output.suffix or "nothing"
        )
    if count < 1:
        raise DataError("VSE-D091", "contact sheet: got count {count}, need 1 or more.", count=count)
    entries = list(_entries(path, split, count=count))
    font = ImageFont.load_default(_FONT_SIZE)
    tiles = [_tile(image, title, captions, font) for image, title, captions in entries]
    sheet = _sheet(tiles)
    try:
        with whole_file(output, durable=False) as stream:
            sheet.save(stream, format="PNG" if output.suffix.lower() == ".png" else "JPEG")
    except OSError as error:
        raise StorageError(
            "VSE-D003", "{file}: cannot write ({reason}); check the folder and its rights.", file=output,
            reason=error.strerror or error,
        ) from error
    return len(tiles)


def _entries(path: str, split: str, *, count: int) -> Iterator[tuple[Image.Image, str, list[str]]]:
    dataset = Dataset.open(path)
    info = dataset.split(split)
    if not dataset.manifest.images_stored:
        raise DataError(
            "VSE-D028", "{folder}: has no photographs in its shards; ingest it again with store_images: true (in "
            "another folder).", folder=path,
        )
    dataset.check_files([split])
    step = max(1, info.images // count)
    wanted = range(0, info.images, step)[:count]
    for shard in info.shards:
        inside = {index for index in wanted if 0 <= index - shard.first_image < shard.images}
        for record, _, photograph in read_some(dataset, shard, inside) if inside else ():
            assert photograph is not None
            yield decoded(photograph), record.name, record.captions


def _tile(image: Image.Image, title: str, captions: Sequence[str], font: Font) -> Image.Image:
    """One image at the left, its name and captions at the right."""
    scale = _THUMBNAIL / max(image.size)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    thumbnail = image.resize(size, Image.Resampling.LANCZOS)
    lines = [(line, _FAINT) for line in textwrap.wrap(title, _LINE_LETTERS)]
    for number, caption in enumerate(captions, start=1):
        lines += [(line, _INK) for line in textwrap.wrap(f"{number}  {caption}", _LINE_LETTERS)]
    height = max(_THUMBNAIL, _LINE * len(lines)) + _MARGIN
    tile = Image.new("RGB", (_THUMBNAIL + _TEXT_WIDTH + 2 * _MARGIN, height), _PAPER)
    tile.paste(thumbnail, (0, 0))
    pen = ImageDraw.Draw(tile)
    for row, (line, colour) in enumerate(lines):
        pen.text((_THUMBNAIL + _MARGIN, row * _LINE), line, fill=colour, font=font)
    return tile


def _sheet(tiles: Sequence[Image.Image]) -> Image.Image:
    """Tiles two a row, with a rule between rows."""
    columns = min(2, len(tiles))
    rows = [tiles[start : start + columns] for start in range(0, len(tiles), columns)]
    heights = [max(tile.height for tile in row) for row in rows]
    width = columns * tiles[0].width + _MARGIN
    sheet = Image.new("RGB", (width, sum(heights) + _MARGIN * (len(rows) + 1)), _PAPER)
    pen, top = ImageDraw.Draw(sheet), _MARGIN
    for row, height in zip(rows, heights, strict=True):
        for column, tile in enumerate(row):
            sheet.paste(tile, (_MARGIN + column * tile.width, top))
        top += height + _MARGIN
        pen.line((_MARGIN, top - _MARGIN, width - _MARGIN, top - _MARGIN), fill=_RULE)
    return sheet


_QUALITY = 82


@dataclass(frozen=True)
class Thumbnail:
    """A small picture. jpeg: the bytes of a JPEG file. width, height: pixels."""

    jpeg: bytes
    width: int
    height: int


@dataclass(frozen=True)
class Picture:
    """index: in the split. name: id as ingested. first_caption: index in the split of the first of its captions.

    words: of every caption as written, one per token id but start and end. boxes: (regions, 4) x1, y1, x2, y2, 0 to 1
    of the image; None where the data set has none. thumbnail: None where images are not stored.
    """

    index: int
    name: str
    first_caption: int
    captions: list[str]
    words: list[list[str]]
    boxes: np.ndarray | None
    thumbnail: Thumbnail | None


def read_pictures(dataset: Dataset, split: str, wanted: Collection[int], *, size: int) -> dict[int, Picture]:
    """Images of a split by index. size: pixels of the longer side of their thumbnails.

    Reads only the shards that contain them. DataError when one is damaged.
    """
    found: dict[int, Picture] = {}
    for shard in dataset.split(split).shards:
        inside = {index for index in wanted if 0 <= index - shard.first_image < shard.images}
        if inside:
            found |= {each[0].index: _picture(*each, size) for each in read_some(dataset, shard, inside)}
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise DataError(
            "VSE-D022", "{folder}: split {split} has no image {image}; check with `vsetune data verify`.",
            folder=dataset.path, split=split, image=missing[0],
        )
    return found


def _picture(
    record: Record, boxes: np.ndarray | None, photograph: Photograph | None, size: int
) -> Picture:
    return Picture(
        index=record.index, name=record.name or str(record.index), first_caption=record.first_caption,
        captions=record.captions, words=list(map(with_case, record.tokens, record.captions)), boxes=boxes,
        thumbnail=None if photograph is None else thumbnail(decoded(photograph), size),
    )


def thumbnail(image: Image.Image, size: int) -> Thumbnail:
    """The image scaled so that its longer side has `size` pixels, but enlarged at most twice."""
    scale = min(2.0, size / max(image.size))
    width, height = (max(1, round(side * scale)) for side in image.size)
    buffer = io.BytesIO()
    image.resize((width, height), Image.Resampling.LANCZOS).save(buffer, format="JPEG", quality=_QUALITY)
    return Thumbnail(buffer.getvalue(), width, height)


_CONTINUES = "##"


class ReadableIds:
    """text_model: the model of the ids' pieces; None for words of the data set. ConfigError for a missing model."""

    def __init__(self, dataset: Dataset, text_model: TextModel | None) -> None:
        self._words = dataset.vocabulary.words
        self._pieces = None if text_model is None else WordPieces(text_model)

    @property
    def are_words(self) -> bool:
        """Whether each id is a word of the data set."""
        return self._pieces is None

    def text(self, number: int) -> tuple[str, bool]:
        """The word or piece, and whether it continues the one before it; special tokens are in brackets."""
        if self._pieces is None:
            word = self._words[number]
            return (f"[{word[1:-1]}]" if number < len(SPECIAL_WORDS) else word), False
        (piece,) = self._pieces.pieces([number])
        if piece.startswith(_CONTINUES):
            return piece.removeprefix(_CONTINUES), True
        return (piece.lower() if piece == "[MASK]" else piece), False
