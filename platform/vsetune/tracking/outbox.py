"""Files that wait to be kept by a store: linked beside the journal, so that their owner may remove them."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

_log = logging.getLogger(__name__)


class Outbox:
    """A folder with one folder for every record that has files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, files: Sequence[Path]) -> list[Path]:
        """Where the files can be found later, under their own names.

        A link costs nothing and keeps the content of a file that is removed or replaced; on another disk it is a
        copy. Where neither works (no space) the file is taken from its own place, if it is still there by then.
        """
        if not files:
            return []
        try:
            self._folder.mkdir(exist_ok=True)
            place = Path(tempfile.mkdtemp(dir=self._folder))
        except OSError as error:
            _log.warning("%s: cannot be written (%s); files are taken from their place", self._folder, error.strerror)
            return [file.absolute() for file in files]
        return [_linked(file, place / file.name) for file in files]

    def remove(self, files: Sequence[Path]) -> None:
        """Forget files that were delivered; those that `put` left in their own place stay."""
        for file in files:
            if file.parent.parent == self._folder:
                shutil.rmtree(file.parent, ignore_errors=True)

    def clear(self) -> None:
        """Forget all files."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _linked(file: Path, target: Path) -> Path:
    try:
        os.link(file, target)
        return target
    except OSError:  # another disk, or one that knows no links
        pass
    try:
        shutil.copy2(file, target)
        return target
    except OSError:
        target.unlink(missing_ok=True)
        return file.absolute()
