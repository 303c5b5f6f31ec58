"""Samples of shards that other software wrote, such as img2dataset: a picture with its captions each.

By WebDataset's convention, members that follow each other and whose names are equal up to the first dot are a sample:
KEY.jpg with KEY.txt or KEY.json. What is not used is told: every member belongs to a sample that is used or has a flaw,
or is one by itself (folders and `__NAME__` members, which describe the shard, are passed over). Nothing is unpickled:
pictures stay bytes, captions are text or a field of a JSON object.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, BinaryIO

from vsetune.config.sources.index_recipe import KeyEnd
from vsetune.data.stored.plain_files import Flaw, caption_text, is_text, parse_json, utf8_text
from vsetune.data.stored.storage import MISFIT
from vsetune.data.stored.tar_members import tar_members
from vsetune.errors import DataError, one_line

PICTURES = ("jpg", "jpeg", "png", "webp")
"""Suffixes of pictures; the first one that a sample has is its picture."""
MOST_CHARACTERS = 20_000
"""Limit for the characters of a caption, and for its words: a longer text is not a caption, and every batch with it
would be padded to it."""

APART = "its members are apart (`tar --sort=name` puts them together)"
AGAIN = "its name comes again (the first sample of a name is used)"
DOTS = "name with further dots (set key_ends_at to last_dot to read it)"
DOTS_ONE_SIDED = "further dots in the name (the suffix begins at the first one; rename, or see key_ends_at)"
_HIDDEN = "hidden file"
_NO_SUFFIX = "file without a suffix"
LINK = "is a link (`tar --dereference --hard-dereference` stores the file itself)"
_LINES = re.compile("\r\n|\r|\n")
"""Ends of lines in a file. `splitlines` also splits at U+2028, U+0085 and others, which stand inside of captions."""

_PICTURE_BYTES, _TEXT_BYTES = 256 << 20, 16 << 20
_SETTINGS = re.compile(r"__[^/]*__($|/)")
"""Names of members that describe the shard, by WebDataset's convention."""

_Parts = dict[str, bytes | Flaw | None]
"""Members of a sample by suffix: content, why there is none, or None for those that are not asked for."""


@dataclass(frozen=True)
class OutsideSample:
    """A sample, or a member that belongs to none.

    picture: encoded; None if there is none. captions: without surrounding blanks; empty if the sample has none that can
    be used. flaw: why the sample cannot be used, as `cause: details`; empty if it can. unused: why captions of it are
    left out, one line each. has_lines: its caption is a text of several lines.
    """

    key: str
    picture: bytes | None
    captions: list[str]
    flaw: str
    unused: list[str] = field(default_factory=list)
    has_lines: bool = False


def outside_samples(stream: BinaryIO, captions: str, key_ends_at: KeyEnd = "first_dot") -> Iterator[OutsideSample]:
    """The samples of a shard in order. captions, key_ends_at: as in `OutsideShard`.

    Flaw, after the last sample before it, for a shard that is cut short or damaged.
    """
    members = _Members(stream, captions, key_ends_at)
    seen: dict[str, set[str]] = {}
    for key, group in groupby(members, key=itemgetter(0)):
        parts: _Parts = {}
        for _, suffix, content in group:
            is_twice = suffix in parts and content is not None
            parts[suffix] = Flaw(f"two members .{suffix}") if is_twice else content
        yield from members.strays
        members.strays.clear()
        dotted = _dotted(key, parts, members.text)
        yield from dotted
        kinds = {_kind(suffix, members.text) for suffix in parts} - {""}
        before = seen.get(key)
        seen[key] = kinds | (before or set())
        if before is None:
            if kinds or not dotted:
                yield _sample(key, parts, captions, members.text)
        elif kinds and kinds <= before:
            yield OutsideSample(key, None, [], AGAIN)
        elif kinds and len(seen[key]) == 2:
            yield OutsideSample(key, None, [], APART)
    yield from members.strays
    if members.flaw is not None:
        raise members.flaw


class _Members:
    """(key, suffix, content) of the members of samples up to the first damage, which is then in `flaw`.

    text: suffix of the member with the captions. strays: members that belong to no sample, until the caller takes them.
    """

    def __init__(self, stream: BinaryIO, captions: str, key_ends_at: KeyEnd) -> None:
        self.flaw: Flaw | None = None
        self.strays: list[OutsideSample] = []
        self.text = captions.partition(".")[0].partition("_")[0]
        self._most = dict.fromkeys(PICTURES, _PICTURE_BYTES) | {self.text: _TEXT_BYTES}
        self._split = _at_last_dot if key_ends_at == "last_dot" else _at_first_dot
        self._members = tar_members(stream, limit=self._limit)

    def __iter__(self) -> Iterator[tuple[str, str, bytes | Flaw | None]]:
        try:
            for header, content in self._members:
                name = header.name
                if header.isdir() or _SETTINGS.match(name):
                    continue
                key, suffix = self._split(name)
                if name.rpartition("/")[2].startswith("."):
                    self.strays.append(OutsideSample(name, None, [], _HIDDEN))
                elif not key or not suffix:
                    self.strays.append(OutsideSample(name, None, [], _NO_SUFFIX))
                else:
                    yield key, suffix, self._content(header, suffix, content)
        except Flaw as flaw:
            self.flaw = flaw

    def _limit(self, name: str) -> int | None:
        return None if _SETTINGS.match(name) else self._most.get(self._split(name)[1])

    def _content(self, header: tarfile.TarInfo, suffix: str, content: bytes | None) -> bytes | Flaw | None:
        if suffix not in self._most or content is not None:
            return content
        if header.issym() or header.islnk():
            return Flaw(f".{suffix} {LINK}: to {one_line(header.linkname)}")
        if not header.isreg():
            return Flaw(f".{suffix} is no file: of type {one_line(header.type)}")
        return Flaw(f".{suffix} is too large: {header.size:,} bytes, need at most {self._most[suffix]:,}")


def _at_first_dot(name: str) -> tuple[str, str]:
    """(key, suffix in small letters) as webdataset splits a name; empty if it leaves the member out."""
    from webdataset.tariterators import base_plus_ext  # brings torch, which checks of a study do without

    key, suffix = base_plus_ext(name)
    return key or "", (suffix or "").lower()


def _at_last_dot(name: str) -> tuple[str, str]:
    folder, slash, base = name.rpartition("/")
    stem, _, suffix = base.rpartition(".")
    return (folder + slash + stem if stem else ""), suffix.lower()


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
                raise DataError(MISFIT(
                    where=f"{where}: line {number}", found="another line", need="a key with captions",
                    fix="index the shards again.",
                ))


def _kind(suffix: str, text: str) -> str:
    return "text" if suffix == text else "picture" if suffix in PICTURES else ""


def _dotted(key: str, parts: _Parts, text: str) -> list[OutsideSample]:
    """The samples that KEY.1.jpg and KEY.1.txt, KEY.2.jpg and KEY.2.txt would be by the last dot of their names."""
    kinds: dict[str, set[str]] = {}
    for suffix in parts:
        stem, _, last = suffix.rpartition(".")
        if stem and _kind(last, text):
            kinds.setdefault(stem, set()).add(_kind(last, text))
    if all(len(found) < 2 for found in kinds.values()):
        return []
    return [OutsideSample(f"{key}.{stem}", None, [], DOTS) for stem in kinds]


def _sample(key: str, parts: _Parts, captions: str, text: str) -> OutsideSample:
    picture = next((parts[suffix] for suffix in PICTURES if suffix in parts), None)
    try:
        content = _wanted(parts.get(text), parts, f"no .{text}")
        texts = _texts(content, captions)
        reasons = [_flaw_of(each) for each in texts]
        usable = [each for each, reason in zip(texts, reasons, strict=True) if not reason]
        unused = [f"caption {reason}: number {number}" for number, reason in enumerate(reasons, start=1) if reason]
        if not usable:
            raise Flaw(f"caption {reasons[0]}" if reasons else "no caption")
        has_lines = captions == "txt" and len(_LINES.split(usable[0])) > 1
        return OutsideSample(key, _wanted(picture, parts, "no picture"), usable, "", unused, has_lines)
    except Flaw as flaw:
        return OutsideSample(key, None, [], str(flaw))


def _wanted(content: bytes | Flaw | None, parts: _Parts, missing: str) -> bytes:
    if isinstance(content, bytes):
        return content
    if content is not None:
        raise content
    suffixes = ", ".join(f".{suffix}" for suffix in parts)
    is_dotted = any(suffix.rpartition(".")[2] in ("txt", "json", *PICTURES) for suffix in parts if "." in suffix)
    raise Flaw(f"{DOTS_ONE_SIDED if is_dotted else missing}: it has {one_line(suffixes)}")


def _texts(content: bytes, captions: str) -> list[Any]:
    """The captions in a member, not checked."""
    if captions.startswith("txt"):
        try:
            text = caption_text(utf8_text(content))
        except Flaw as flaw:
            raise Flaw(f".txt {flaw}") from flaw
        return list(map(caption_text, _LINES.split(text))) if captions == "txt_lines" else [text]
    name = captions.partition(".")[2]
    try:
        plain = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Flaw(f".json unreadable: {one_line(error)}") from error
    value = plain.get(name) if isinstance(plain, dict) else None
    if value is None:
        raise Flaw(f"no caption: its .json has no {name}")
    return [caption_text(each) if isinstance(each, str) else each for each in (
        value if isinstance(value, list) else [value]
    )]


def _flaw_of(caption: Any) -> str:
    """Why a caption cannot be used; empty if it can."""
    if not isinstance(caption, str):
        return "is no text"
    if not is_text(caption):
        return "has half of a surrogate pair"
    if "\0" in caption:
        return "has a NUL character (is it UTF-16?)"
    if len(caption) > MOST_CHARACTERS:
        return f"is longer than {MOST_CHARACTERS:,} characters"
    return "" if caption else "is empty"
