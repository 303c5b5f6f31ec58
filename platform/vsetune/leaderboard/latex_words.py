"""Escaping of text for LaTeX."""

from __future__ import annotations

import re

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "±": r"$\pm$", "−": "$-$",
    "–": "--", "∞": r"$\infty$",
}
_HYPHEN_BEFORE_ANOTHER = re.compile("-(?=-)")
"""LaTeX sets two hyphens as a dash, so that a command with --options could not be copied from the typeset text."""


def tex(text: str) -> str:
    """The text with LaTeX's special characters escaped and the signs of our tables as LaTeX commands."""
    parts = _HYPHEN_BEFORE_ANOTHER.split(text)
    return "-{}".join("".join(_LATEX.get(character, character) for character in part) for part in parts)
