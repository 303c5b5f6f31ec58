"""Archives of images that any tar program wrote: where their files stand, and what is refused."""

from __future__ import annotations

import io
import random
import tarfile
from contextlib import suppress
from typing import Any

import pytest

from vsetune.data.stored.plain_files import Flaw
from vsetune.data.stored.tar_members import file_places

CONTENT = {"a.jpg": b"first", "deep/b.jpg": b"x" * 1300, f"{'long/' * 40}c.jpg": b"third", "d\u00e9j\u00e0.jpg": b""}


def archive(format_: int, mode: Any = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=format_) as tar:
        folder = tarfile.TarInfo("deep")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in CONTENT.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("e.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "a.jpg"
        tar.addfile(link)
    return buffer.getvalue()


@pytest.mark.parametrize("format_", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_files_stand_where_their_places_say_and_links_and_folders_are_passed_over(format_: int) -> None:
    written = archive(format_)
    places = list(file_places(io.BytesIO(written)))
    assert {each.name: written[each.offset : each.offset + each.size] for each in places} == CONTENT


def test_a_packed_archive_is_refused() -> None:
    with pytest.raises(Flaw):
        list(file_places(io.BytesIO(archive(tarfile.GNU_FORMAT, "w:gz"))))


def test_a_sparse_file_is_refused() -> None:
    header = bytearray(tarfile.TarInfo("holes.jpg").tobuf(tarfile.GNU_FORMAT))
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[148:156] = f"{256 + sum(header[:148]) + sum(header[156:]):06o}\0 ".encode()
    with pytest.raises(Flaw, match=r"member holes\.jpg is sparse"):
        list(file_places(io.BytesIO(bytes(header) + bytes(1024))))


def test_broken_archives_are_told_or_read_and_nothing_else() -> None:
    whole, draw = archive(tarfile.PAX_FORMAT), random.Random(0)
    for _ in range(300):
        broken = bytearray(whole[: draw.randrange(1, len(whole))])
        for _ in range(draw.randrange(1, 9)):
            broken[draw.randrange(len(broken))] = draw.randrange(256)
        with suppress(Flaw):
            list(file_places(io.BytesIO(bytes(broken))))
