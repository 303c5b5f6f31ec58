"""Contents of a scene, and a small grammar that describes it."""

from __future__ import annotations

import random
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


_NOUNS = {
    "circle": (("circle", "circles"), ("disc", "discs")),
    "square": (("square", "squares"), ("box", "boxes")),
    "triangle": (("triangle", "triangles"),),
    "diamond": (("diamond", "diamonds"), ("rhombus", "rhombuses")),
    "star": (("star", "stars"),),
    "cross": (("cross", "crosses"), ("plus sign", "plus signs")),
    "ring": (("ring", "rings"), ("hoop", "hoops")),
    "hexagon": (("hexagon", "hexagons"),),
}
_ANYTHING = (("shape", "shapes"), ("object", "objects"), ("thing", "things"))
_COLOURS = {
    "red": ("red", "crimson"), "green": ("green",), "blue": ("blue",), "yellow": ("yellow", "golden"),
    "orange": ("orange",), "purple": ("purple", "violet"), "white": ("white",), "black": ("black", "dark"),
}
_SIZES = {"small": ("small", "little", "tiny"), "large": ("large", "big", "huge")}
_TEXTURES = {"plain": ("plain", "solid"), "striped": ("striped", "stripy"), "dotted": ("dotted", "spotted")}
_RELATIONS = {
    "left": ("to the left of", "on the left side of", "left of"),
    "right": ("to the right of", "on the right side of", "right of"),
    "above": ("above", "over", "on top of"),
    "below": ("below", "under", "beneath"),
    "inside": ("inside", "within", "in the middle of"),
    "around": ("around", "surrounding", "enclosing"),
}
_INVERSES = {**OPPOSITES, "inside": "around"}
_ALONE = ("{things}", "there {be} {things}", "a picture of {things}", "{things} and nothing else")
_PAIRS = (
    "{things} {relation} {others}", "there {be} {things} {relation} {others}",
    "a picture of {things} {relation} {others}", "{things} {be} {relation} {others}",
)
_VAGUE = ("{things} and {others}", "{things} together with {others}", "{things} near {others}")
_GROUNDS = ("on a {ground} background", "against {ground}", "on {ground} ground")

_TELLS_COLOUR = 0.95
_TELLS_SHAPE = 0.9
_TELLS_SIZE = 0.5
_TELLS_TEXTURE = {"plain": 0.15, "striped": 0.6, "dotted": 0.6}
_TELLS_BACKGROUND = 0.35
_TELLS_OTHERS = 0.9
_TELLS_RELATION = 0.9


def describe(scene: Scene, rng: random.Random, *, count: int) -> tuple[str, ...]:
    """`count` different true captions of a scene."""
    captions: dict[str, None] = {}
    while len(captions) < count:
        captions[_caption(scene, rng)] = None
    return tuple(captions)


def _caption(scene: Scene, rng: random.Random) -> str:
    things, others, relation = scene.first, scene.second, scene.relation
    if others is None or relation is None or rng.random() > _TELLS_OTHERS:
        text = rng.choice(_ALONE[:3] if others else _ALONE).format(things=_phrase(things, rng), be=_be(things))
    else:
        if rng.random() < 0.4:
            things, others, relation = others, things, _INVERSES[relation]
        form = rng.choice(_PAIRS if rng.random() < _TELLS_RELATION else _VAGUE)
        text = form.format(
            things=_phrase(things, rng), be=_be(things), others=_phrase(others, rng),
            relation=rng.choice(_RELATIONS[relation]),
        )
    if rng.random() < _TELLS_BACKGROUND:
        text = f"{text} {rng.choice(_GROUNDS).format(ground=scene.background)}"
    return f"{text} ."


def _phrase(things: Things, rng: random.Random) -> str:
    """`two small red striped stars`; size, colour, texture or shape may be missing, never colour and shape both."""
    tells_shape = rng.random() < _TELLS_SHAPE
    words = []
    if rng.random() < _TELLS_SIZE:
        words.append(rng.choice(_SIZES[things.size]))
    if not tells_shape or rng.random() < _TELLS_COLOUR:
        words.append(rng.choice(_COLOURS[things.colour]))
    if rng.random() < _TELLS_TEXTURE[things.texture]:
        words.append(rng.choice(_TEXTURES[things.texture]))
    one, many = rng.choice(_NOUNS[things.shape] if tells_shape else _ANYTHING)
    words.append(one if things.count == 1 else many)
    return f"{_number(things.count, words[0], rng)} {' '.join(words)}"


def _number(count: int, following: str, rng: random.Random) -> str:
    if count == 1:
        return rng.choice(("an" if following[0] in "aeiou" else "a", "one", "a single"))
    return rng.choice({2: ("two", "a pair of"), 3: ("three", "three")}[count])


def _be(things: Things) -> str:
    return "is" if things.count == 1 else "are"
