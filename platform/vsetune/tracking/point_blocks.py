"""How points are written into short strings: in blocks, in the order in which they were recorded.

A block is one text, `1 CURVE NUMBERS`: the format, then two parts in base64 of zlib of JSON. CURVE has five columns,
the fields of `CurvePoint`, from which curves and boards are read; NUMBERS has all else that a validation told, by name.
A block holds as many points as one tag takes, some thirty, so that it is written whole or not at all; when no more fit
the next one begins, and a long training does not rewrite its past with every point.
"""

from __future__ import annotations

import base64
import itertools
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from vsetune.errors import StorageError
from vsetune.tracking.pieces import PIECE, from_pieces, in_pieces
from vsetune.tracking.records import ValidationPoint

POINTS = "vsetune.points"
_FORMAT = "1"
_MOST_UNPACKED = 16 << 20
_DEVICE_SECONDS, _PAIRS_SEEN = "device_seconds", "pairs_seen"


class CurvePoint(NamedTuple):
    """What curves and costs need of a point. device_seconds: None when the attempt did not report it."""

    step: int
    epoch: float
    m_recall: float
    train_seconds: float
    device_seconds: float | None

    @classmethod
    def of(cls, point: ValidationPoint) -> CurvePoint:
        device_seconds = point.metrics.get(_DEVICE_SECONDS)
        return cls(point.step, point.epoch, point.m_recall, point.train_seconds, device_seconds)

    def seconds(self) -> dict[str, float]:
        """What the last point of an unfinished attempt tells about its cost."""
        device = {} if self.device_seconds is None else {_DEVICE_SECONDS: self.device_seconds}
        return {"train_seconds": self.train_seconds, **device}


def packed(plain: Any) -> str:
    """JSON, compressed, as letters and digits."""
    text = json.dumps(plain, separators=(",", ":"), default=str)
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()


def unpacked(text: str) -> Any:
    """What `packed` has packed. ValueError for anything else."""
    return json.loads(unpacked_text(text))


def unpacked_text(text: str) -> str:
    """The same as the JSON that it is. ValueError, also for more than any record of ours."""
    opened = zlib.decompressobj()
    try:
        content = opened.decompress(base64.b64decode(text), _MOST_UNPACKED)
    except zlib.error as error:
        raise ValueError(f"cannot be unpacked ({error})") from error
    if not opened.eof:
        raise ValueError(f"is cut short, or unpacks to more than {_MOST_UNPACKED >> 20} MiB")
    return content.decode()


class Block(NamedTuple):
    """number: counted from 0 in its attempt. text: of all its points."""

    number: int
    points: tuple[ValidationPoint, ...]
    text: str

    @property
    def tags(self) -> dict[str, str]:
        return in_pieces(f"{POINTS}.{self.number}", self.text)


NO_BLOCK = Block(0, (), "")
"""What comes before the first point."""


def with_points(last: Block, new: Sequence[ValidationPoint]) -> list[Block]:
    """What has to be written after some new points, at least one: the last block with them, or those that follow it."""
    points = (*last.points, *new)
    whole = Block(last.number, points, _text(points))
    if len(whole.text) < PIECE or len(points) == 1:
        return [whole]
    if last.points:
        return with_points(Block(last.number + 1, (), ""), new)
    half = len(new) // 2
    *earlier, middle = with_points(last, new[:half])
    return [*earlier, middle, *with_points(Block(middle.number + 1, (), ""), new[half:])]


def last_block(tags: Mapping[str, str]) -> Block:
    """The last one of an attempt."""
    texts = list(block_texts(tags))
    return Block(len(texts) - 1, tuple(points_of_block(texts[-1])), texts[-1]) if texts else NO_BLOCK


def block_texts(tags: Mapping[str, str]) -> Iterator[str]:
    """The blocks of an attempt, the first one first."""
    for number in itertools.count():
        text = from_pieces(f"{POINTS}.{number}", tags)
        if text is None:
            return
        yield text


def curve_of_block(text: str) -> list[list[Any]]:
    """The fields of the CurvePoint of every point; of ten thousand curves the objects would take longer than the text.
    StorageError for a format of a later vsetune."""
    return [list(fields) for fields in zip(*unpacked(_parts(text)[0]), strict=True)]


def points_of_block(text: str) -> list[ValidationPoint]:
    """All of it, as it was recorded. StorageError for a format of a later vsetune."""
    pairs_seen, numbers = unpacked(_parts(text)[1])
    points = []
    for place, fields in enumerate(curve_of_block(text)):
        metrics = {name: column[place] for name, column in numbers.items() if column[place] is not None}
        step, epoch, m_recall, train_seconds, device_seconds = fields
        if device_seconds is not None:
            metrics[_DEVICE_SECONDS] = device_seconds
        points.append(ValidationPoint(step, epoch, pairs_seen[place], m_recall, train_seconds, metrics))
    return points


def _text(points: Sequence[ValidationPoint]) -> str:
    curve = list(zip(*map(CurvePoint.of, points), strict=True))
    names = dict.fromkeys(name for point in points for name in point.metrics if name != _DEVICE_SECONDS)
    numbers = {name: [point.metrics.get(name) for point in points] for name in names}
    return " ".join((_FORMAT, packed(curve), packed([[point.pairs_seen for point in points], numbers])))


def _parts(text: str) -> tuple[str, str]:
    layout, _, rest = text.partition(" ")
    if layout != _FORMAT:
        raise StorageError(
            f"tracking store: points in format {layout[:10]!r}, this vsetune reads {_FORMAT}; install the version that "
            "recorded them, or a later one"
        )
    curve, _, numbers = rest.partition(" ")
    return curve, numbers
