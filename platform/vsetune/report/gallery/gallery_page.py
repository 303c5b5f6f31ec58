"""The gallery as one self-contained HTML page: it has no scripts, makes no requests and escapes user text.

The page contains every picture once and refers to it wherever it is shown.
"""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image

from vsetune.data.looking.show import Picture
from vsetune.networks.sentence_writing import Verdict
from vsetune.report.gallery.gallery import Gallery
from vsetune.report.gallery.heat_maps import HeatMap
from vsetune.report.gallery.rankings import Candidate, Ranking
from vsetune.report.page_templates import render

_CELLS_OF_BOXES = 48
"""Cells per side of the raster for boxes."""
_BLANK = 120
"""Pixels per side of the placeholder of a picture that is not stored."""
_COLOURS = np.array([[10, 6, 34], [96, 24, 110], [232, 96, 38], [252, 250, 160]], float)
_OPACITIES = np.array([0.72, 0.66, 0.60, 0.55])

VERDICTS: dict[Verdict, str] = {
    "kept": "kept",
    "not_among_best": "filtered: not among the best",
    "identical": "filtered: identical",
    "duplicate": "filtered: duplicate",
    "false_negative": "filtered: false negative",
}

Mark = Literal["true", "hardest", ""]


@dataclass(frozen=True)
class About:
    """Description of the trial on the page. facts: (name, value) pairs for the footer."""

    title: str
    network: str
    loss: str
    dataset: str
    facts: list[tuple[str, str]]


@dataclass(frozen=True)
class _Heat:
    """A heat map as PNGs to lay over the picture. on_picture: False if the places of the regions are not known."""

    png: str
    scale: str
    on_picture: bool
    words: list[tuple[str, str]]
    word_scale: str


def to_html(gallery: Gallery, about: About) -> str:
    """The whole page as text. It needs no network and no JavaScript."""
    shown = _shown(gallery)
    return render(
        "gallery.html.j2", about=about, gallery=gallery, pictures=[gallery.pictures[index] for index in shown],
        heat={caption: _heat(gallery, caption, heat) for caption, heat in gallery.heat.items()},
        bases=sorted({heat.basis for heat in gallery.heat.values()}),
        has_pictures=any(picture.thumbnail is not None for picture in gallery.pictures.values()),
        verdicts=VERDICTS, data_uri=_data_uri, size=_size, score=_score, candidates=_candidates,
        mark=_mark,
    )


def _shown(gallery: Gallery) -> list[int]:
    """Indices of the pictures that the page shows; for other images it shows captions only."""
    hard = [index for each in gallery.hard_captions for index in (each.true, each.wrong)]
    hard += [each.query for each in gallery.hard_images]
    captions = [gallery.owner[ranking.query] for ranking in gallery.captions]
    captions += [item.index for ranking in gallery.captions for item in _candidates(ranking)]
    written = [] if gallery.sentences is None else [each.image for each in gallery.sentences.written]
    corrected = [] if gallery.sentences is None else [each.image for each in gallery.sentences.corrections]
    return sorted({*hard, *captions, *written, *corrected, *(ranking.query for ranking in gallery.images)})


def _candidates(ranking: Ranking) -> list[Candidate]:
    """The top, then the best true item and the hardest negative if the top lacks them."""
    more = [ranking.best_true] + ([] if ranking.hardest_negative is None else [ranking.hardest_negative])
    beyond = {item.rank: item for item in more if item.rank > len(ranking.top)}
    return ranking.top + [beyond[rank] for rank in sorted(beyond)]


def _mark(item: Candidate, ranking: Ranking) -> Mark:
    if item.is_true:
        return "true"
    return "hardest" if item == ranking.hardest_negative else ""


def _heat(gallery: Gallery, caption: int, heat: HeatMap) -> _Heat:
    boxes = _places(gallery.picture_of(caption), heat)
    words: list[tuple[str, str]] = []
    word_scale = ""
    if heat.words is not None:
        low, high = float(heat.words.min()), float(heat.words.max())
        names = gallery.words(caption)
        if len(names) != len(heat.words):
            names = [f"token {place}" for place in range(len(heat.words))]
        words = [
            (name, overlay(raster(row, boxes), low=low, high=high))
            for name, row in zip(names, heat.words, strict=True)
        ]
        word_scale = _scale(low, high)
    low, high = float(heat.regions.min()), float(heat.regions.max())
    if heat.basis == "gradient":
        low = 0.0
    return _Heat(
        overlay(raster(heat.regions, boxes), low=low, high=high), _scale(low, high),
        on_picture=boxes is not None or math.isqrt(len(heat.regions)) ** 2 == len(heat.regions),
        words=words, word_scale=word_scale,
    )


def _places(picture: Picture, heat: HeatMap) -> np.ndarray | None:
    """(R, 4) boxes of the regions; None for the cells of a square grid over the whole image."""
    if heat.centre is None:
        return picture.boxes if picture.boxes is not None and len(picture.boxes) == len(heat.regions) else None
    side, shorter = math.isqrt(len(heat.regions)), heat.centre * min(_size(picture))
    width, height = (shorter / length for length in _size(picture))
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
    return _data_uri(buffer.getvalue(), "png")


def _data_uri(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _size(picture: Picture) -> tuple[int, int]:
    """Width and height of its thumbnail, or of the placeholder, in pixels."""
    small = picture.thumbnail
    return (_BLANK, _BLANK) if small is None else (small.width, small.height)


def _scale(low: float, high: float) -> str:
    """The ends of a heat map's scale; a low end of at most 1/1000 of the high end is printed as 0."""
    return f"{_score(low) if low > high / 1000 else 0} to {_score(high)}"


def _score(value: float) -> str:
    """Three decimals; two significant digits for a number below 0.01, so that it is not printed as 0.000."""
    return f"{value:.3f}" if abs(value) >= 0.01 else f"{value:.2g}"
