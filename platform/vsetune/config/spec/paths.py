"""Where relative paths of a study lead: one home folder, the same for the shell and for cluster jobs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from vsetune.errors import ConfigError

HOME_VARIABLE = "VSETUNE_HOME"

_LONGEST_PATH, _LONGEST_NAME = 4095, 255
"""Bytes that Linux takes for a path, and for each name in it."""


def home() -> Path:
    """The folder for data and results: $VSETUNE_HOME, or ~/vsetune. On a cluster, a folder that every node sees.

    ConfigError when it is no local folder, or when nobody's home folder is known.
    """
    given = os.environ.get(HOME_VARIABLE) or "~/vsetune"
    try:
        return Path(local_path(given)).absolute()
    except ValueError as error:
        raise ConfigError(f"{HOME_VARIABLE}: {error}") from error


def under_home(path: str) -> str:
    """An absolute path or URL as it is; a relative one under `home()`. ConfigError for what can be no path."""
    try:
        if "://" in path:
            return usable_path(path)
        return str(home() / expand_user(usable_path(path)))
    except ValueError as error:
        raise ConfigError(str(error)) from error


def usable_path(text: str) -> str:
    """The text if it can be a path or URL; ValueError in one line otherwise. Looks at nothing on disk."""
    if not text.strip():
        raise ValueError(f"got {text!r}, need a path")
    if "\0" in text:
        raise ValueError(f"got {text[:60]!r} with a NUL character in it, need a path; remove it")
    if not _is_unicode(text):
        raise ValueError(f"got {text[:60]!r}, need a path in UTF-8")
    if len(text.encode()) > _LONGEST_PATH or any(len(part.encode()) > _LONGEST_NAME for part in text.split("/")):
        raise ValueError(
            f"got a path of {len(text):,} characters ({text[:40]}...), need at most {_LONGEST_PATH:,} bytes, "
            f"{_LONGEST_NAME} in each of its names"
        )
    if "://" not in text:
        expand_user(text)
    return text


def local_path(text: str) -> str:
    """A path on this machine with its `~` replaced; ValueError in one line for a URL and for what can be no path."""
    if "://" in text:
        raise ValueError(f"got {text}, need a local or shared folder (results on object storage come later)")
    return expand_user(usable_path(text))


def expand_user(text: str) -> str:
    """A leading `~` or `~user` replaced. ValueError in one line when there is no such user."""
    try:
        return str(Path(text).expanduser())
    except RuntimeError as error:
        user = text.split("/")[0]
        raise ValueError(f"{text}: no home folder of {user} on this machine; write the path in full") from error


def usable_uri(text: str) -> str:
    """The text if it can be a URI; ValueError in one line otherwise. Whether anything answers there is not asked."""
    if not text.strip() or any(character.isspace() for character in text):
        raise ValueError("need a URI, got one that is empty or has blanks in it")
    try:
        _ = urlsplit(text).port  # raises for one that is no number
    except ValueError as error:
        raise ValueError(f"need a URI ({error})") from error
    return text


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _local(text: str) -> str:
    local_path(text)
    return text


PathText = Annotated[str, AfterValidator(usable_path)]
"""A path or URL in a file, kept as it was written."""

UriText = Annotated[str, AfterValidator(usable_uri)]
"""The address of a database or a server. It may hold a password, so no message repeats it."""

LocalPathText = Annotated[str, AfterValidator(_local)]
"""The same, and no URL."""
