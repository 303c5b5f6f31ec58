"""Contents of a scene: the attributes that captions describe and in which siblings differ."""

from __future__ import annotations

from dataclasses import dataclass

SHAPES = ("circle", "square", "triangle", "diamond", "star", "cross", "ring", "hexagon")
ENCLOSING_SHAPES = ("circle", "square", "diamond", "hexagon")
COLOURS = ("red", "green", "blue", "yellow", "orange", "purple", "white", "black")
SIZES = ("small", "large")
TEXTURES = ("plain", "striped", "dotted")
COUNTS = (1, 2, 3)
BACKGROUNDS = ("grey", "pink", "brown", "cyan")
SIDES = ("left", "right", "above", "below")
OPPOSITES = {"left": "right", "right": "left", "above": "below", "below": "above"}


@dataclass(frozen=True)
class Things:
    """One to three equal shapes."""

    shape: str
    colour: str
    size: str
    texture: str
    count: int


@dataclass(frozen=True)
class Scene:
    """Things, alone or in a relation (one of SIDES, or inside) to other things."""

    background: str
    first: Things
    relation: str | None = None
    second: Things | None = None
