"""Drawing a scene. Places, shades and sizes vary a little, so that no two images are equal."""

from __future__ import annotations

import io
import math
import random

import numpy as np
from PIL import Image, ImageDraw

from vsetune.data.making.scene_captions import OPPOSITES, Scene, Things

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
