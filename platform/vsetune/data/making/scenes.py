"""The embedded data set: scenes of coloured shapes, drawn and described here. Nothing to download.

Scenes come in families of four that differ in one attribute each (a colour, a count, left or right, ...), so every
image has hard negatives by construction. Captions leave attributes out, so one caption can fit several images.
Everything is a function of the seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from vsetune.config.sources.recipe import ScenesSource
from vsetune.data.making.raw import RawDataset, RawImage, RawSplit
from vsetune.data.making.scene_captions import (
    BACKGROUNDS,
    COLOURS,
    COUNTS,
    ENCLOSING_SHAPES,
    OPPOSITES,
    SHAPES,
    SIDES,
    SIZES,
    TEXTURES,
    Scene,
    Things,
    describe,
)
from vsetune.data.making.scene_images import draw

FAMILY = 4
"""Scenes per family: one and three siblings."""
CAPTIONS = 5
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
    changes: list[Callable[[Scene, random.Random], Scene]] = [_recolour, _reshape, _resize, _retexture]
    if scene.relation != "inside":
        changes.append(_recount)
    if scene.relation in OPPOSITES:
        changes += [_turn_round, _reshape_second, _recolour_second]
    return changes


def _recolour(scene: Scene, rng: random.Random) -> Scene:
    taken = {scene.first.colour, scene.second.colour if scene.second else None}
    return replace(scene, first=replace(scene.first, colour=rng.choice([c for c in COLOURS if c not in taken])))


def _reshape(scene: Scene, rng: random.Random) -> Scene:
    return replace(scene, first=replace(scene.first, shape=_other(SHAPES, scene.first.shape, rng)))


def _resize(scene: Scene, rng: random.Random) -> Scene:
    return replace(scene, first=replace(scene.first, size=_other(SIZES, scene.first.size, rng)))


def _retexture(scene: Scene, rng: random.Random) -> Scene:
    return replace(scene, first=replace(scene.first, texture=_other(TEXTURES, scene.first.texture, rng)))


def _recount(scene: Scene, rng: random.Random) -> Scene:
    return replace(scene, first=replace(scene.first, count=_other(COUNTS, scene.first.count, rng)))


def _turn_round(scene: Scene, rng: random.Random) -> Scene:
    assert scene.relation is not None
    return replace(scene, relation=OPPOSITES[scene.relation])


def _reshape_second(scene: Scene, rng: random.Random) -> Scene:
    assert scene.second is not None
    return replace(scene, second=replace(scene.second, shape=_other(SHAPES, scene.second.shape, rng)))


def _recolour_second(scene: Scene, rng: random.Random) -> Scene:
    assert scene.second is not None
    taken = {scene.first.colour, scene.second.colour}
    return replace(scene, second=replace(scene.second, colour=rng.choice([c for c in COLOURS if c not in taken])))


def _other(values: tuple[T, ...], value: T, rng: random.Random) -> T:
    return rng.choice([other for other in values if other != value])
