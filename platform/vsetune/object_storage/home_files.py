"""Single files of a home on object storage: stored there, and fetched to the same place of this node's folder.

With a local home, and for files that are not in it, nothing happens.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vsetune.config.spec.paths import home, remote_home, remote_place
from vsetune.object_storage.mirror_contents import Piece, StoredFile, bring, fetch
from vsetune.object_storage.s3 import look, upload


def keep_in_home(file: Path) -> str | None:
    """Store a file of the node's folder under the remote home too. Returns its address, None if nothing was done.

    StorageError.
    """
    url = _place(file)
    if url is not None:
        upload(file, url)
    return url


def find_in_home(file: Path) -> bool:
    """Fetch a file that `keep_in_home` has stored, unless it is here already. Returns whether it is here now.

    StorageError when it cannot be had whole.
    """
    url, remote = _place(file), remote_home()
    if url is None or remote is None:
        return False
    there = look(url)
    if there is None or there.sha256 is None:
        return False
    key = url.removeprefix(f"{remote}/")
    bring(remote, StoredFile((Piece(key, there.size, there.sha256),)), file)
    return True


def bring_mirrored(folder: Path, wanted: Callable[[str], bool], *, into: Path | None = None) -> None:
    """Fetch those files of a folder mirrored by another machine whose names are wanted. into: None for the folder
    itself, which no other process may then be writing. StorageError."""
    url = _place(folder)
    if url is not None:
        fetch(url, folder if into is None else into, wanted)


def _place(path: Path) -> str | None:
    if remote_home() is None or not path.absolute().is_relative_to(home()):
        return None
    return remote_place(path.absolute())
