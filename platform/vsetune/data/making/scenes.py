"""The generated data set: scenes of coloured shapes, drawn and described here. Nothing to download."""

from __future__ import annotations

import io
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from PIL import Image, ImageDraw

from vsetune.config.sources.recipe import ScenesSource
from vsetune.data.making.raw import RawDataset, RawImage, RawSplit

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
_COLOUR_WORDS = {
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
        words.append(rng.choice(_COLOUR_WORDS[things.colour]))
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


FAMILY = 4
"""Scenes per family: one and three siblings."""
CAPTIONS = 5
_VALUES: dict[str, tuple[Any, ...]] = {"shape": SHAPES, "size": SIZES, "texture": TEXTURES, "count": COUNTS}
_DOUBLES = 0.6
_INSIDE = 0.15

T = TypeVar("T")


@dataclass(frozen=True)
class SceneImage:
    """A scene that is drawn when it is read. seed: of the places and shades inside it."""

    name: str
    scene: Scene
    seed: str
    image_size: int

    @property
    def place(self) -> str:
        return f"scene {self.name}"

    @property
    def size(self) -> int:
        return 1024 + 3 * self.image_size**2

    def read(self) -> bytes:
        return draw(self.scene, random.Random(self.seed), size=self.image_size)


def read_scenes(source: ScenesSource) -> RawDataset:
    """The scenes of a recipe; each split has families of its own."""
    sizes = {"train": source.train, "validation": source.validation, "test": source.test}
    splits = {name: RawSplit(list(_images(source, name, count))) for name, count in sizes.items() if count}
    return RawDataset(splits)


def _images(source: ScenesSource, split: str, count: int) -> Iterator[RawImage]:
    for index in range(count):
        family, member = divmod(index, FAMILY)
        scene = family_of(f"{source.seed}/{split}/{family}")[member]
        name = f"{split}-{index:06d}"
        seed = f"{source.seed}/{name}"
        captions = describe(scene, random.Random(f"{seed}/captions"), count=CAPTIONS)
        yield RawImage(name, captions, SceneImage(name, scene, seed, source.image_size))


def family_of(seed: str) -> list[Scene]:
    """A scene and its siblings, all different; each sibling differs from the first scene in one attribute."""
    rng = random.Random(seed)
    family = [_new_scene(rng)]
    while len(family) < FAMILY:
        sibling = rng.choice(_changes(family[0]))(family[0], rng)
        if sibling not in family:
            family.append(sibling)
    return family


def _new_scene(rng: random.Random) -> Scene:
    background = rng.choice(BACKGROUNDS)
    first = _new_things(rng)
    if rng.random() > _DOUBLES:
        return Scene(background, first)
    other_colour = _other(COLOURS, first.colour, rng)
    if rng.random() < _INSIDE:
        around = Things(rng.choice(ENCLOSING_SHAPES), other_colour, "large", "plain", 1)
        return Scene(background, replace(first, count=1), "inside", around)
    return Scene(background, first, rng.choice(SIDES), replace(_new_things(rng), colour=other_colour))


def _new_things(rng: random.Random) -> Things:
    return Things(
        rng.choice(SHAPES), rng.choice(COLOURS), rng.choice(SIZES), rng.choice(TEXTURES), rng.choice(COUNTS)
    )


def _changes(scene: Scene) -> list[Callable[[Scene, random.Random], Scene]]:
    """The ways to change one attribute of a scene."""
    changes: list[Callable[[Scene, random.Random], Scene]] = [
        partial(_recolour, part="first"),
        *(partial(_change, part="first", name=name) for name in ("shape", "size", "texture")),
    ]
    if scene.relation != "inside":
        changes.append(partial(_change, part="first", name="count"))
    if scene.relation in OPPOSITES:
        changes += [_turn_round, partial(_change, part="second", name="shape"), partial(_recolour, part="second")]
    return changes


def _recolour(scene: Scene, rng: random.Random, *, part: str) -> Scene:
    taken = {things.colour for things in (scene.first, scene.second) if things is not None}
    colour = rng.choice([colour for colour in COLOURS if colour not in taken])
    return replace(scene, **{part: replace(getattr(scene, part), colour=colour)})


def _change(scene: Scene, rng: random.Random, *, part: str, name: str) -> Scene:
    things = getattr(scene, part)
    return replace(scene, **{part: replace(things, **{name: _other(_VALUES[name], getattr(things, name), rng)})})


def _turn_round(scene: Scene, rng: random.Random) -> Scene:
    assert scene.relation is not None
    return replace(scene, relation=OPPOSITES[scene.relation])


def _other(values: tuple[T, ...], value: T, rng: random.Random) -> T:
    return rng.choice([other for other in values if other != value])


Colour = tuple[int, int, int]
Point = tuple[float, float]

_COLOURS: dict[str, Colour] = {
    "red": (205, 30, 35), "green": (30, 150, 50), "blue": (35, 70, 200), "yellow": (240, 220, 40),
    "orange": (245, 135, 20), "purple": (125, 40, 160), "white": (245, 245, 245), "black": (20, 20, 25),
}
_BACKGROUNDS: dict[str, Colour] = {
    "grey": (130, 130, 130), "pink": (235, 170, 185), "brown": (125, 85, 55), "cyan": (130, 215, 220),
}
_RADII = {"small": 0.10, "large": 0.16}
_ENCLOSING_RADIUS = 0.36
_NOISE = 5.0


def draw(scene: Scene, rng: random.Random, *, size: int) -> bytes:
    """The scene as a JPEG of size x size pixels; the same scene, generator and size give the same picture."""
    image = Image.new("RGB", (size, size), _shaded(_BACKGROUNDS[scene.background], rng))
    if scene.relation == "inside" and scene.second is not None:
        middle = (rng.uniform(0.42, 0.58), rng.uniform(0.42, 0.58))
        _draw_shape(image, scene.second, middle, _ENCLOSING_RADIUS, rng)
        _draw_shape(image, scene.first, middle, _RADII[scene.first.size], rng)
    else:
        _draw_group(image, scene.first, scene.relation, rng)
        if scene.second is not None and scene.relation is not None:
            opposite = OPPOSITES[scene.relation]
            _draw_group(image, scene.second, opposite, rng)
    return _as_jpeg(image, seed=rng.getrandbits(32))


def _draw_group(image: Image.Image, things: Things, side: str | None, rng: random.Random) -> None:
    """Place each shape in a third of its half of the picture (of any row or column when it is alone)."""
    along = rng.sample((1 / 6, 3 / 6, 5 / 6), things.count)
    across = {"left": 0.25, "above": 0.25, "right": 0.75, "below": 0.75, None: rng.uniform(0.25, 0.75)}[side]
    is_row = side in {"above", "below"} or (side is None and rng.random() < 0.5)
    for place in along:
        a, b = place + rng.uniform(-0.015, 0.015), across + rng.uniform(-0.07, 0.07)
        radius = _RADII[things.size] * rng.uniform(0.92, 1.06)
        _draw_shape(image, things, (a, b) if is_row else (b, a), radius, rng)


def _draw_shape(image: Image.Image, things: Things, centre: Point, radius: float, rng: random.Random) -> None:
    """centre, radius: in widths of the picture."""
    size = image.width
    colour = _shaded(_COLOURS[things.colour], rng)
    fill = Image.new("RGB", image.size, colour)
    _draw_texture(fill, things.texture, _contrast(colour), step=max(3, round(size / 14)))
    mask = Image.new("L", image.size, 0)
    _draw_outline(ImageDraw.Draw(mask), things.shape, (centre[0] * size, centre[1] * size), radius * size)
    image.paste(fill, mask=mask)


def _draw_outline(pen: ImageDraw.ImageDraw, shape: str, centre: Point, radius: float) -> None:
    x, y = centre
    box = (x - radius, y - radius, x + radius, y + radius)
    if shape == "circle":
        pen.ellipse(box, fill=255)
    elif shape == "ring":
        pen.ellipse(box, outline=255, width=max(2, round(radius * 0.38)))
    elif shape == "square":
        side = radius * 0.88
        pen.rectangle((x - side, y - side, x + side, y + side), fill=255)
    elif shape == "cross":
        arm = radius * 0.32
        pen.rectangle((x - arm, y - radius, x + arm, y + radius), fill=255)
        pen.rectangle((x - radius, y - arm, x + radius, y + arm), fill=255)
    else:
        pen.polygon(_corners(shape, centre, radius), fill=255)


def _corners(shape: str, centre: Point, radius: float) -> list[Point]:
    """Corners clockwise from the top; those of a star lie alternately near and far."""
    radii = {
        "triangle": [1.1] * 3, "diamond": [1.1] * 4, "hexagon": [1.0] * 6, "star": [1.15, 0.48] * 5,
    }[shape]
    start = math.pi / 6 if shape == "hexagon" else 0.0
    angles = [start + 2 * math.pi * index / len(radii) for index in range(len(radii))]
    return [
        (centre[0] + radius * far * math.sin(angle), centre[1] - radius * far * math.cos(angle))
        for far, angle in zip(radii, angles, strict=True)
    ]


def _draw_texture(fill: Image.Image, texture: str, colour: Colour, *, step: int) -> None:
    pen, size = ImageDraw.Draw(fill), fill.width
    if texture == "striped":
        for offset in range(-size, size, step):
            pen.line((offset, 0, offset + size, size), fill=colour, width=max(1, step // 3))
    elif texture == "dotted":
        for row, y in enumerate(range(0, size, step)):
            for x in range((row % 2) * step // 2, size, step):
                pen.rectangle((x, y, x + step // 3, y + step // 3), fill=colour)


def _shaded(colour: Colour, rng: random.Random) -> Colour:
    red, green, blue = (min(255, max(0, channel + rng.randint(-14, 14))) for channel in colour)
    return red, green, blue


def _contrast(colour: Colour) -> Colour:
    """A lighter shade of a dark colour, a darker shade of a light one."""
    target = 255 if sum(colour) < 330 else 0
    red, green, blue = ((channel + target) // 2 for channel in colour)
    return red, green, blue


def _as_jpeg(image: Image.Image, *, seed: int) -> bytes:
    noise = np.random.default_rng(seed).normal(0.0, _NOISE, (image.height, image.width, 1))
    noisy = np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noisy).save(buffer, format="JPEG", quality=90)
    return buffer.getvalue()
