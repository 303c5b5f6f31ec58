"""Resolution of a study's relative paths: one home, the same for the shell and for cluster jobs.

The home is a folder, or a prefix on object storage, `VSETUNE_HOME=s3://bucket/prefix`, for nodes without a shared disk.
Then every node works in a folder of its own, and files that must outlive the node are also stored under the prefix.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from vsetune.errors import ConfigError, Problem
from vsetune.home.addresses import shown_url
from vsetune.home.hashes import sha256_hex

HOME_VARIABLE, NODE_FOLDER_VARIABLE = "VSETUNE_HOME", "VSETUNE_NODE_FOLDER"
NODE_CACHE_VARIABLE = "VSETUNE_NODE_CACHE"
_REMOTE = "s3://"

_MISSPELT = re.compile(
    r"\s*(s3[an]?|gs|gcs|https?|file|hdfs|abfss?|sqlite|postgresql|mysql)(:(?!//)|//)|\s*s3[an]?://", re.IGNORECASE
)
"""The start of an address without its `://`: as a path it would be a folder in the working directory."""
_LONGEST_PATH, _LONGEST_NAME = 4095, 255
"""Bytes that Linux accepts for a path, and for each name in it."""


def home() -> Path:
    """The folder on this machine for data and results: $VSETUNE_HOME, or ~/vsetune.

    With a remote home it is a folder of this node: $VSETUNE_NODE_FOLDER, or one under ~/.cache/vsetune for each home.
    ConfigError for an impossible folder, or when a user's home folder is unknown.
    """
    remote = remote_home()
    if remote is None:
        return _folder_in(HOME_VARIABLE, "~/vsetune")
    return _folder_in(NODE_FOLDER_VARIABLE, f"~/.cache/vsetune/{sha256_hex(remote.encode())[:12]}")


def make_folders_absolute() -> None:
    """Make the folders absolute for this process and for processes that inherit its environment, such as Ray's workers:
    each works in another folder, where a relative path would mean another folder. ConfigError as in `home`."""
    for variable in (HOME_VARIABLE, NODE_FOLDER_VARIABLE, NODE_CACHE_VARIABLE):
        given = os.environ.get(variable)
        if given and not given.startswith(_REMOTE):
            os.environ[variable] = str(_folder_in(variable, given))


def home_variable() -> str:
    """The variable that sets the folder `home()`; for messages."""
    is_remote = (os.environ.get(HOME_VARIABLE) or "").startswith(_REMOTE)
    return NODE_FOLDER_VARIABLE if is_remote else HOME_VARIABLE


def remote_home() -> str | None:
    """The home on object storage, `s3://bucket/prefix` without a slash at its end; None if the home is a folder.

    ConfigError for an address without a bucket, with keys in it, or with a `?` or `#`.
    """
    given = os.environ.get(HOME_VARIABLE) or ""
    if not given.startswith(_REMOTE):
        return None
    if shown_url(given) != given:
        raise ConfigError(
            "VSE-O004", "{where}: keys do not belong in the address; need s3://bucket/prefix, and AWS_ACCESS_KEY_ID "
            "and AWS_SECRET_ACCESS_KEY, a profile or a role.", where=f"{HOME_VARIABLE}: got {shown_url(given)}",
        )
    names = given.removeprefix(_REMOTE).rstrip("/").split("/")
    if not given.isprintable() or set(given) & set("?# ") or set(names) & {"", ".", ".."}:
        raise ConfigError(
            "VSE-O008", "{variable}: got {found!r}, need s3://bucket/prefix", variable=HOME_VARIABLE, found=given
        )
    return _REMOTE + "/".join(names)


def remote_place(path: Path) -> str | None:
    """The address under the remote home for a file or folder of `home()`; None with a local home.

    ConfigError for a path that is not in `home()`.
    """
    remote = remote_home()
    if remote is None:
        return None
    if not path.is_relative_to(home()):
        raise ConfigError(
            "VSE-O009", "{path}: is not in {home}, so it has no place in {remote}; need a relative folder", path=path,
            home=home(), remote=remote,
        )
    return f"{remote}/{path.relative_to(home()).as_posix()}"


def under_home(path: str) -> str:
    """An absolute path or URL unchanged; a relative path under the home, which may be remote.

    ConfigError for an impossible path.
    """
    try:
        if "://" in path:
            return usable_path(path)
        remote, expanded = remote_home(), expand_user(usable_path(path))
        if remote is not None and not Path(expanded).is_absolute():
            return f"{remote}/{Path(expanded).as_posix()}"
        return str(home() / expanded)
    except ValueError as error:
        raise ConfigError(error.args[0]) from error


def on_this_node(path: str) -> str:
    """As `under_home`, but a relative path is always under the folder `home()` of this machine."""
    return under_home(path if "://" in path else str(home() / _expanded(path)))


def _expanded(path: str) -> str:
    try:
        return expand_user(usable_path(path))
    except ValueError as error:
        raise ConfigError(error.args[0]) from error


def _folder_in(variable: str, default: str) -> Path:
    given = os.environ.get(variable) or default
    if given != given.strip() or given.startswith("$"):
        raise ConfigError(
            "VSE-O471", "{variable}: got {found!r}, need a folder without blanks around it and without variables",
            variable=variable, found=given,
        )
    try:
        return Path(local_path(given)).absolute()
    except ValueError as error:
        raise ConfigError(error.args[0].at(variable)) from error


def usable_path(text: str) -> str:
    """The text if it can be a path or URL; ValueError in one line otherwise. Does not access the disk."""
    if not text.strip():
        raise ValueError(Problem.of("VSE-O010", "got {found!r}, need a path", found=text))
    if _MISSPELT.match(text) and not text.startswith(_REMOTE):
        raise ValueError(Problem.of(
            "VSE-O470", "got {found!r}, need a path, or an address such as s3://bucket/prefix", found=text[:60]
        ))
    if "\0" in text:
        raise ValueError(Problem.of(
            "VSE-O011", "got {found!r} with a NUL character in it, need a path; remove it", found=text[:60]
        ))
    if not _is_unicode(text):
        raise ValueError(Problem.of("VSE-O012", "got {found!r}, need a path in UTF-8", found=text[:60]))
    if len(text.encode()) > _LONGEST_PATH or any(len(part.encode()) > _LONGEST_NAME for part in text.split("/")):
        raise ValueError(Problem.of(
            "VSE-O013", "got a path of {characters:,} characters ({start}...), need at most {most:,} bytes, "
            "{most_name} in each of its names", characters=len(text), start=text[:40], most=_LONGEST_PATH,
            most_name=_LONGEST_NAME,
        ))
    if "://" not in text:
        expand_user(text)
    return text


def local_path(text: str) -> str:
    """A path on this machine with its `~` replaced; ValueError in one line for a URL or an impossible path."""
    if "://" in text:
        raise ValueError(Problem.of(
            "VSE-O014", "got {found}, need a local or shared folder; results go to object storage by "
            "{variable}=s3://...", found=text, variable=HOME_VARIABLE,
        ))
    return expand_user(usable_path(text))


def expand_user(text: str) -> str:
    """The text with a leading `~` or `~user` replaced. ValueError in one line when there is no such user."""
    try:
        return str(Path(text).expanduser())
    except RuntimeError as error:
        user = text.split("/")[0]
        raise ValueError(Problem.of(
            "VSE-O015", "{path}: no home folder of {user} on this machine; write the path in full", path=text,
            user=user,
        )) from error


def usable_uri(text: str) -> str:
    """The text if it can be a URI; ValueError in one line otherwise. Does not check whether anything answers there."""
    if not text.strip() or any(character.isspace() for character in text):
        raise ValueError(Problem.of("VSE-O016", "need a URI, got one that is empty or has blanks in it"))
    try:
        _ = urlsplit(text).port  # raises for a port that is not a number
    except ValueError as error:
        raise ValueError(Problem.of("VSE-O017", "need a URI ({reason})", reason=error)) from error
    return text


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


PathText = Annotated[str, AfterValidator(usable_path)]
"""A path or URL in a file, stored as it was written."""

UriText = Annotated[str, AfterValidator(usable_uri)]
"""The address of a database or a server. It may hold a password, so no message repeats it."""
