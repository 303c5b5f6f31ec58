"""The messages of `search`."""

from __future__ import annotations

from vsetune.errors import Message

ALL_REFUSED = Message(
    "VSE-E001", "cell {cell}: {which} were refused, the last ({values}) because {reason}; make the search range and "
    "what the spec accepts agree (`losses check` and `networks check` try values inside ranges)",
)
OTHER_SPACE = Message(
    "VSE-E002", "search: cell {cell}: {setting} was searched as {there}, and would now be as {here}; give the study "
    "another name",
)
