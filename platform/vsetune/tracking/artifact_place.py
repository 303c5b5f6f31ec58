"""Whether a SQLite store keeps the files of its studies beside itself, or in the home that it was copied from.

MLflow notes the place of an experiment's artifacts in full. In a home that was copied or moved it is still that of the
old one, and whatever is recorded in the copy would be written there, into somebody else's study.
"""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from vsetune.config.spec.secrets import shown_url
from vsetune.errors import StorageError, UnusableStore
from vsetune.tracking.sqlite_reading import connected

_SQLITE = "sqlite:///"
ARTIFACTS = "artifacts"
"""The folder beside a SQLite file."""


@dataclass(frozen=True)
class OtherPlace:
    """Where artifacts go, and where they belong. location: the first as MLflow has it."""

    location: str
    there: Path
    here: Path


def other_place(uri: str, experiment: str) -> OtherPlace | None:
    """The folder of another home in which the artifacts of this experiment are kept; None where they are beside the
    store, where this version would not have put them there, and for every store that is no SQLite file.

    StorageError when the file cannot be read.
    """
    database = Path(uri.removeprefix(_SQLITE)).absolute()
    if not uri.startswith(_SQLITE) or not database.is_file():
        return None
    try:
        with connected(database) as ask:
            found = list(ask("SELECT artifact_location FROM experiments WHERE name = :name", {"name": experiment}))
    except sqlite3.Error as error:
        raise StorageError(
            f"tracking database {database}: cannot read where {experiment} keeps its files ({error}); check the file, "
            "then repeat"
        ) from error
    location = str(found[0][0] or "") if found else ""
    there, here = local_folder(location), database.parent / ARTIFACTS / folder_name(experiment)
    if there is None or there.parts[-2:] != here.parts[-2:] or os.path.realpath(there) == os.path.realpath(here):
        return None
    return OtherPlace(location, there, here)


def require_own_place(uri: str, experiment: str) -> None:
    """UnusableStore when files of this experiment would be written into the folder of another home."""
    other = other_place(uri, experiment)
    if other is not None:
        study = "" if "/" in experiment else f" {experiment}"
        raise UnusableStore(
            f"{shown_name(experiment)}: its files would go to {other.there}, since {uri.removeprefix(_SQLITE)} is in a "
            f"home that was copied or moved; to have them kept in {other.here}: "
            f"vsetune tracking doctor{study} --mend --tracking-uri {shown_url(uri)}"
        )


def shown_name(experiment: str) -> str:
    """For messages: a study, or the nights of a sweep."""
    return f"experiment {experiment}" if "/" in experiment else f"study {experiment}"


def folder_name(experiment: str) -> str:
    """Of an experiment, below the folder of artifacts."""
    return experiment.replace("/", "-")


def local_folder(location: str) -> Path | None:
    """The folder that MLflow means by the place of artifacts; None for one that is no folder."""
    if location.startswith("file:"):
        return Path(unquote(urlsplit(location).path))
    return Path(location) if location.startswith("/") else None
