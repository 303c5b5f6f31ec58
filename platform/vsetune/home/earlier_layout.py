"""What earlier versions stored of a folder under a home on object storage: files in pieces below `objects/`, and a list
of them, `contents.json`. It is read here, and made into one object per file by whoever works in the folder next.
"""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from vsetune.errors import DamagedObject, StorageError, one_line
from vsetune.home.addresses import has_controls, join
from vsetune.home.hashes import sha256_hex
from vsetune.home.s3 import delete, find, listing, look, upload
from vsetune.home.whole_files import make_folder, whole_file

CONTENTS_FILE, OBJECTS, LEASE_FILE = "contents.json", "objects", "lease.json"
_FOLDER = re.compile(r"(.*/runs/[^/]+(?:/trials/[^/]+)?)/(.+)")
_MOST_BYTES = 64 << 20
_LARGEST_PIECE = 1 << 40


def convert(prefix: str) -> None:
    """Make every file of this folder an object, and remove the list and the pieces. Nothing happens without a list.

    DamagedObject, StorageError: the list and the pieces are as before.
    """
    files = _files(prefix)
    if files is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(files):
            if look(join(prefix, name)) is None:
                _write(prefix, files[name], Path(folder) / str(number))
                upload(Path(folder) / str(number), join(prefix, name))
                (Path(folder) / str(number)).unlink()
    delete([*(join(prefix, name) for name in (CONTENTS_FILE, LEASE_FILE)), *listing(join(prefix, f"{OBJECTS}/"))])


def earlier_names(prefix: str, wanted: Callable[[str], bool]) -> list[str]:
    """Names of the wanted files of this folder. StorageError."""
    return [name for name in _files(prefix) or () if wanted(name)]


def bring_earlier(url: str, path: Path) -> bool:
    """Write the file that earlier versions would have stored at this address. Returns whether there is one.

    DamagedObject, StorageError.
    """
    parts = _FOLDER.fullmatch(url)
    stored = None if parts is None else (_files(parts[1]) or {}).get(parts[2])
    if parts is None or stored is None:
        return False
    make_folder(path.parent)
    _write(parts[1], stored, path)
    return True


def _files(prefix: str) -> dict[str, Any] | None:
    """The list, by name; None where there is none."""
    url = join(prefix, CONTENTS_FILE)
    found = find(url, most=_MOST_BYTES)
    if found is None:
        return None
    try:
        return {_plain_name(name): each for name, each in json.loads(found[0])["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StorageError(
            "VSE-O041", "{url}: damaged list of files ({reason}); bring back an older version of it, or remove "
            "{prefix} to start again", url=url, reason=one_line(error), prefix=prefix,
        ) from error


def _write(prefix: str, stored: Any, path: Path) -> None:
    with whole_file(path, durable=False, by_many=True) as stream:
        if "content" in stored:
            stream.write(base64.b64decode(stored["content"], validate=True))
        for piece in stored.get("pieces", ()):
            url = join(prefix, _plain_name(piece["key"]))
            found = find(url, most=_LARGEST_PIECE)
            if found is None or sha256_hex(found[0]) != piece["sha256"]:
                raise DamagedObject(
                    "VSE-O043", "{url}: is not what was written ({found:,} of {need:,} bytes, or another SHA-256); it "
                    "was damaged on the server, bring it back or start what it belongs to again.", url=url,
                    found=0 if found is None else len(found[0]), need=piece["size"],
                )
            stream.write(found[0])


def _plain_name(name: str) -> str:
    """The name, unchanged. ValueError for a name that could lead out of its folder."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or has_controls(name) or "\\" in name:
        raise ValueError(f"a file called {one_line(name)}")
    return name
