"""Words for LaTeX."""

from __future__ import annotations

import re

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "±": r"$\pm$", "−": "$-$",
    "–": "--", "∞": r"$\infty$",
}
_HYPHEN_BEFORE_ANOTHER = re.compile("-(?=-)")
"""Two of them are a dash to LaTeX, and a command with --options could not be copied from what it sets."""


def tex(text: str) -> str:
    """With what LaTeX would take for its own escaped, and the signs of our tables as it writes them."""
    parts = _HYPHEN_BEFORE_ANOTHER.split(text)
    return "-{}".join("".join(_LATEX.get(character, character) for character in part) for part in parts)
