"""The messages of `quality`."""

from __future__ import annotations

from vsetune.errors import Message

NOT_ONE = Message("VSE-Q001", "{reference}: need the folder of one {kind}, got {found}; name its folder")
FOLDER_EXISTS = Message("VSE-Q002", "{folder}: is there already; choose another name, or another --folder")
BAD_NAME = Message(
    "VSE-Q003", "{kind} {name}: need a name of lower-case letters, digits and _ that starts with a letter, at most "
    "{most} long and no word of Python, such as my_{kind}",
)
TAKEN_NAME = Message("VSE-Q004", "{kind} {name}: vsetune has a {kind} of this name; choose another")
