"""Long texts in a store that knows only short ones: cut into pieces, named one after the other."""

from __future__ import annotations

from collections.abc import Mapping

PIECE = 5000
"""Characters per tag. MLflow 3 takes 8,000; servers before 2.9 took 5,000."""


def in_pieces(name: str, text: str) -> dict[str, str]:
    """Tags `name`, `name.1`, `name.2`, ... that together hold `text`; the last is shorter than PIECE."""
    pieces = [text[start : start + PIECE] for start in range(0, len(text) + 1, PIECE)]
    return {name if index == 0 else f"{name}.{index}": piece for index, piece in enumerate(pieces)}


def from_pieces(name: str, tags: Mapping[str, str]) -> str | None:
    """The text that `in_pieces` cut up; None if there is none. A short piece is the last; older ones may follow it."""
    if name not in tags:
        return None
    pieces = [tags[name]]
    while len(pieces[-1]) == PIECE and f"{name}.{len(pieces)}" in tags:
        pieces.append(tags[f"{name}.{len(pieces)}"])
    return "".join(pieces)
