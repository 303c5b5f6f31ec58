"""Heat maps as PNGs to lay over pictures of a page, and the words and sizes beside them."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from vsetune.board.gallery.heat_maps import HeatMap
from vsetune.data.looking.show import Picture

_CELLS_OF_BOXES = 48
"""Cells per side of the raster for boxes."""
_BLANK = 120
"""Pixels per side of the placeholder of a picture that is not stored."""
_COLOURS = np.array([[10, 6, 34], [96, 24, 110], [232, 96, 38], [252, 250, 160]], float)
_OPACITIES = np.array([0.72, 0.66, 0.60, 0.55])


@dataclass(frozen=True)
class DrawnHeat:
    """A heat map as PNGs to lay over the picture. on_picture: False if the places of the regions are not known."""

    png: str
    scale: str
    on_picture: bool
    words: list[tuple[str, str]]
    word_scale: str


def drawn_heat(heat: HeatMap, picture: Picture, words: Sequence[str] = ()) -> DrawnHeat:
    """The heat map over a picture. words: one for each token of the caption, for attention that has words."""
    boxes = places_of(heat, picture)
    by_word: list[tuple[str, str]] = []
    word_scale = ""
    if heat.words is not None:
        low, high = float(heat.words.min()), float(heat.words.max())
        names = words if len(words) == len(heat.words) else [f"token {place}" for place in range(len(heat.words))]
        by_word = [
            (name, overlay(raster(row, boxes), low=low, high=high))
            for name, row in zip(names, heat.words, strict=True)
        ]
        word_scale = _scale(low, high)
    low, high = float(heat.regions.min()), float(heat.regions.max())
    if heat.basis == "gradient":
        low = 0.0
    return DrawnHeat(
        overlay(raster(heat.regions, boxes), low=low, high=high), _scale(low, high),
        on_picture=boxes is not None or math.isqrt(len(heat.regions)) ** 2 == len(heat.regions),
        words=by_word, word_scale=word_scale,
    )


def places_of(heat: HeatMap, picture: Picture) -> np.ndarray | None:
    """(R, 4) boxes of the regions; None for the cells of a square grid over the whole image."""
    if heat.centre is None:
        return picture.boxes if picture.boxes is not None and len(picture.boxes) == len(heat.regions) else None
    side, shorter = math.isqrt(len(heat.regions)), heat.centre * min(size_of(picture))
    width, height = (shorter / length for length in size_of(picture))
    lefts, tops = ((1 - share) / 2 + share * np.arange(side) / side for share in (width, height))
    left, top = (each.ravel() for each in np.meshgrid(lefts, tops))
    return np.stack((left, top, left + width / side, top + height / side), axis=1)


def raster(values: np.ndarray, boxes: np.ndarray | None) -> np.ndarray:
    """(rows, columns) heat over the image. values: (R,), of boxes, or of the cells of a square grid row by row.

    Overlapping boxes show the largest value. Without boxes, an R that is no square number gives one row of R.
    """
    if boxes is None:
        side = math.isqrt(len(values))
        return values.reshape(side, side) if side**2 == len(values) else values[None, :]
    found = np.zeros((_CELLS_OF_BOXES, _CELLS_OF_BOXES))
    for (left, top, right, bottom), value in zip(boxes * _CELLS_OF_BOXES, values, strict=True):
        rows = slice(math.floor(top), max(math.floor(top) + 1, math.ceil(bottom)))
        columns = slice(math.floor(left), max(math.floor(left) + 1, math.ceil(right)))
        found[rows, columns] = np.maximum(found[rows, columns], value)
    return found


def overlay(heat: np.ndarray, *, low: float, high: float) -> str:
    """A data URI of a PNG, one pixel per cell: dark where heat is `low` or less, bright where it is `high`."""
    share = ((heat - low) / (high - low)).clip(0, 1) if high > low else np.zeros_like(heat)
    place = share * (len(_COLOURS) - 1)
    steps = np.arange(len(_COLOURS))
    channels = [np.interp(place, steps, _COLOURS[:, channel]) for channel in range(3)]
    channels.append(255 * np.interp(place, steps, _OPACITIES))
    buffer = io.BytesIO()
    Image.fromarray(np.stack(channels, axis=-1).round().astype(np.uint8), "RGBA").save(buffer, format="PNG")
    return data_uri(buffer.getvalue(), "png")


def data_uri(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def size_of(picture: Picture) -> tuple[int, int]:
    """Width and height of its thumbnail, or of the placeholder, in pixels."""
    small = picture.thumbnail
    return (_BLANK, _BLANK) if small is None else (small.width, small.height)


def _scale(low: float, high: float) -> str:
    """The ends of a heat map's scale; a low end of at most 1/1000 of the high end is printed as 0."""
    return f"{score_text(low) if low > high / 1000 else 0} to {score_text(high)}"


def score_text(value: float) -> str:
    """Three decimals; two significant digits for a number below 0.01, so that it is not printed as 0.000."""
    return f"{value:.3f}" if abs(value) >= 0.01 else f"{value:.2g}"
