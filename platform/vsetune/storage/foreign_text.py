"""Foreign text inside our messages: one line, bounded, without characters that a terminal would act on."""

from __future__ import annotations

import re

_LONGEST = 200
_PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")


def one_line(what: object, *, most: int = _LONGEST) -> str:
    """The text (of an error: its own, or its class) without line ends, control characters and passwords of addresses.

    most: length limit, in characters; a longer text is cut and ends in `...`.
    """
    text = " ".join(str(what).split()) or type(what).__name__
    text = _PASSWORD.sub("***@", text)
    shown = "".join(sign if sign.isprintable() else f"\\x{ord(sign):02x}" for sign in text[: most + 1])
    return shown if len(shown) <= most else shown[:most] + "..."
