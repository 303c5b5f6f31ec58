"""A contact sheet: images of a split with their captions, as one picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from vsetune.config.spec.foreign_text import one_line
from vsetune.data.batches.pixels import decoded
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.shards import read_some
from vsetune.errors import DataError, StorageError
from vsetune.files.whole_files import whole_file

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_THUMBNAIL = 220
_TEXT_WIDTH = 380
_MARGIN = 16
_FONT_SIZE = 15
_LINE = 20
_INK, _FAINT, _PAPER, _RULE = (25, 25, 30), (120, 120, 130), (255, 255, 255), (225, 225, 230)


def contact_sheet(path: str, split: str, output: Path, *, count: int) -> int:
    """Draw up to count images of a split, spread over it, two a row. output: .png or .jpg. Returns their number.

    DataError: no such split, or images are not stored. StorageError: the picture cannot be written.
    """
    if output.suffix.lower() not in {".png", ".jpg", ".jpeg"}:
        raise StorageError(f"{output}: ends in {output.suffix or 'nothing'}, need .png or .jpg.")
    if count < 1:
        raise DataError(f"contact sheet: got count {count}, need 1 or more.")
    entries = list(_entries(path, split, count=count))
    font = ImageFont.load_default(_FONT_SIZE)
    tiles = [_tile(image, title, captions, font) for image, title, captions in entries]
    sheet = _sheet(tiles)
    try:
        with whole_file(output, durable=False) as stream:
            sheet.save(stream, format="PNG" if output.suffix.lower() == ".png" else "JPEG")
    except OSError as error:
        raise StorageError(f"{output}: cannot write ({error.strerror or error}); choose another place.") from error
    return len(tiles)


def _entries(path: str, split: str, *, count: int) -> Iterator[tuple[Image.Image, str, list[str]]]:
    dataset = Dataset.open(path)
    if split not in dataset.manifest.splits:
        there = ", ".join(dataset.manifest.splits) or "none"
        raise DataError(f"{path}: no split {one_line(split)}, it has {there}; name one of them.")
    if not dataset.manifest.images_stored:
        raise DataError(f"{path}: no images in its shards; ingest with store_images: true to see them.")
    dataset.check_files([split])
    info = dataset.split(split)
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
    lines = [(line, _FAINT) for line in wrap(title, _TEXT_WIDTH, font)]
    for number, caption in enumerate(captions, start=1):
        lines += [(line, _INK) for line in wrap(f"{number}  {caption}", _TEXT_WIDTH, font)]
    height = max(_THUMBNAIL, _LINE * len(lines)) + _MARGIN
    tile = Image.new("RGB", (_THUMBNAIL + _TEXT_WIDTH + 2 * _MARGIN, height), _PAPER)
    tile.paste(thumbnail, (0, 0))
    pen = ImageDraw.Draw(tile)
    for row, (line, colour) in enumerate(lines):
        pen.text((_THUMBNAIL + _MARGIN, row * _LINE), line, fill=colour, font=font)
    return tile


def wrap(text: str, width: int, font: Font) -> list[str]:
    """Lines no wider than width pixels; a word that is wider is cut."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if font.getlength(longer) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        while font.getlength(word) > width:
            fitting = next(n for n in range(len(word), 0, -1) if n == 1 or font.getlength(word[:n]) <= width)
            lines.append(word[:fitting])
            word = word[fitting:]
        line = word
    return [*lines, line] if line else lines


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
