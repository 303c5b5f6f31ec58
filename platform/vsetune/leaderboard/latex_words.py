"""Words for LaTeX."""

from __future__ import annotations

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "±": r"$\pm$", "−": "$-$",
    "–": "--", "∞": r"$\infty$",
}


def tex(text: str) -> str:
    """With what LaTeX would take for its own escaped, and the signs of our tables as it writes them."""
    return "".join(_LATEX.get(character, character) for character in text)
