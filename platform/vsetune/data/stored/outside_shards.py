"""Samples of shards that other software wrote, such as img2dataset: a picture with its captions each.

By WebDataset's convention, members that follow each other and whose names are equal up to the first dot are a sample:
KEY.jpg with KEY.txt or KEY.json. A key that comes up again later in the shard is not a second sample. Nothing is
unpickled: pictures stay bytes, captions are text or a field of a JSON object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import BinaryIO

from vsetune.data import messages
from vsetune.data.stored.plain_files import Flaw, is_text, parse_json
from vsetune.data.stored.tar_members import tar_members
from vsetune.errors import DataError

PICTURES = ("jpg", "jpeg", "png", "webp")
"""Suffixes of pictures; the first one that a sample has is its picture."""
MOST_CHARACTERS = 20_000
"""Limit for the characters of a caption, and for its words: a longer text is not a caption, and every batch with it
would be padded to it."""

_PICTURE_BYTES, _TEXT_BYTES = 256 << 20, 16 << 20
_SETTINGS = re.compile(r"__[^/]*__($|/)")
"""Names of members that describe the shard, by WebDataset's convention."""


@dataclass(frozen=True)
class OutsideSample:
    """picture: encoded; None if there is none. captions: without surrounding blanks; empty if
    the sample has none that can be used. flaw: why a part is missing, empty if none is."""

    key: str
    picture: bytes | None
    captions: list[str]
    flaw: str


def outside_samples(stream: BinaryIO, captions: str) -> Iterator[OutsideSample]:
    """The samples of a shard in order. captions: as in `OutsideShard`.

    Flaw, after the last sample before it, for a shard that is cut short or damaged.
    """
    from webdataset.tariterators import base_plus_ext  # brings torch, which checks of a study do without

    members = _UntilFlaw(stream, captions.partition(".")[0])
    seen: set[str] = set()
    for key, parts in groupby(members, key=lambda member: base_plus_ext(member[0])[0]):
        found = {_suffix(name): content for name, content in parts}
        if key not in seen:
            seen.add(key)
            yield _sample(key, found, captions)
    if members.flaw is not None:
        raise members.flaw


class _UntilFlaw:
    """(name, content) of the members of samples up to the first damage, which is then in `flaw`."""

    def __init__(self, stream: BinaryIO, text: str) -> None:
        self.flaw: Flaw | None = None
        most = dict.fromkeys(PICTURES, _PICTURE_BYTES) | {text: _TEXT_BYTES}
        self._members = tar_members(
            stream, extended=True, limit=lambda name: None if _SETTINGS.match(name) else most.get(_suffix(name)),
        )

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        try:
            yield from self._members
        except Flaw as flaw:
            self.flaw = flaw


def texts_content(texts: Iterable[tuple[str, list[str]]]) -> bytes:
    """File of the (key, captions) of a shard's images: JSON, a line each. With it, captions are read without pictures.
    """
    return "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in texts).encode()


def texts_in(content: bytes, *, where: str) -> Iterator[tuple[str, list[str]]]:
    """Reads `texts_content` back. DataError for other content."""
    for number, line in enumerate(content.splitlines(), start=1):
        plain = parse_json(line, where=f"{where}: line {number}", fix="index the shards again.")
        match plain:
            case [str(key), [*captions]] if captions and all(map(is_text, captions)):
                yield key, captions
            case _:
                raise DataError(messages.MISFIT(
                    where=f"{where}: line {number}", found="another line", need="a key with captions",
                    fix="index the shards again.",
                ))


def _suffix(name: str) -> str:
    from webdataset.tariterators import base_plus_ext

    return str(base_plus_ext(name)[1] or "").lower()


def _sample(key: str, parts: dict[str, bytes], captions: str) -> OutsideSample:
    picture = next((parts[suffix] for suffix in PICTURES if suffix in parts), None)
    member, _, field = captions.partition(".")
    if member not in parts:
        return OutsideSample(key, picture, [], f"no .{member}")
    try:
        texts = _field(parts[member], field) if field else [parts[member].decode()]
    except (ValueError, RecursionError):
        return OutsideSample(key, picture, [], f".{member} unreadable")
    usable = [text.strip() for text in texts if is_text(text) and 0 < len(text.strip()) <= MOST_CHARACTERS]
    if not usable:
        return OutsideSample(key, picture, [], "no caption")
    return OutsideSample(key, picture, usable, "no picture" if picture is None else "")


def _field(content: bytes, field: str) -> list[str]:
    """The texts in a field of a JSON object: one, or a list of them."""
    plain = json.loads(content)
    value = plain.get(field) if isinstance(plain, dict) else None
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]
