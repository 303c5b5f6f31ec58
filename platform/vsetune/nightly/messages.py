"""The errors of nights that users see, by subject."""

from __future__ import annotations

from vsetune.errors import Message

# Options and settings
WRONG_OPTION = Message("VSE-G001", "{option}: got {got}, need {need}")
WRONG_VALUE = Message("VSE-G002", "got {got}, need {need}")
NOTHING_SEARCHED = Message("VSE-G003", "{key}.search: a nightly sweep searches nothing; remove it")

# The history
BUSY = Message("VSE-G010", "{what}: another process is at work on it; wait for it or stop it")
NOT_WRITABLE = Message("VSE-G011", "{folder}: cannot be written ({reason}); set {variable} to another folder")
COMPLETE = Message(
    "VSE-G012",
    "nightly {name}: the night of {date} is complete; --again replaces it, `vsetune nightly history` shows it",
)
UNREADABLE = Message("VSE-G013", "{file}: cannot read ({reason}); {remedy}")
WRONG_CONTENT = Message("VSE-G014", "{file}: is no {kind} of format {format} ({reason})")
NEWER_FORMAT = Message(
    "VSE-G015",
    "{file}: was written by a newer version of vsetune (format {got}, this one reads {need}); update vsetune to read "
    "it",
)
WRONG_DATE = Message("VSE-G016", "{file}: contains the night of {date}; two nights have one date")
FILE_STAYS = Message("VSE-G017", "{file}: cannot be renamed or removed ({reason}); fix the permissions of its folder")

# Accepted changes
NO_NIGHT_YET = Message("VSE-G020", "nightly {name}: has no night yet, so there is nothing to accept; run one first")
NO_SUCH_NIGHT = Message(
    "VSE-G021", "--date: nightly {name} has no night of {date}; need one of its nights, the newest is {newest}"
)
ACCEPTED_ALREADY = Message(
    "VSE-G022", "{date}: is accepted already ({measure}, {cell}: {reason}); there is nothing to accept"
)
NO_CHANGE = Message(
    "VSE-G023",
    "{date}: its report shows no change in {measure} of {cell}, so there is nothing to accept (changed: {changed})",
)

# Delivery
NOT_SET = Message(
    "VSE-G050", "{where}: the environment lacks {variables}; export it, or take `{setting}` out of the file"
)
NO_ADDRESS = Message(
    "VSE-G051",
    "{where}: holds no address that can be used; need https://... without blanks, or an Apprise address such as "
    "discord://...",
)
NOT_DELIVERED = Message("VSE-G052", "{where}: not delivered ({reason})")
