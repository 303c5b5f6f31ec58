"""A data set of drawn features and made-up captions that can be learnt, of any size, written in a moment.

Every image has a colour, a shape and a size; its features lie around vectors of these, its captions name them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vsetune.data.making.shard_writer import Sample, write_shard
from vsetune.data.stored.manifest import (
    VOCABULARY_FILE,
    FeatureInfo,
    Manifest,
    SplitInfo,
    VocabularyInfo,
    write_manifest,
)
from vsetune.data.stored.vocabulary import Vocabulary
from vsetune.home.hashes import sha256_hex

COLOURS = ("red", "green", "blue", "white", "black", "yellow", "brown")
SHAPES = ("circle", "square", "star", "cross", "ring")
SIZES = ("small", "large", "huge")
PLACES = ("on the table", "near a tree", "in the snow beside two dogs", "under a bridge")
CAPTIONS = 5
NOISE = 0.5
IMAGES_PER_SHARD = 250


@dataclass(frozen=True)
class Made:
    """images: of the train split. evaluated: of the validation and of the test split. rare: words that stand in the
    vocabulary and in the captions beside those that tell something."""

    images: int = 60
    evaluated: int = 20
    regions: int = 6
    width: int = 48
    rare: int = 0


class PlainWords(Sample):
    """Captions without punctuation, split at blanks: the tokeniser of real captions is another package."""

    def members(self) -> list[tuple[str, bytes]]:
        spoken = [caption.split() for caption in self.captions]
        (name, record), *others = Sample(**{**vars(self), "captions": ()}).members()
        whole = json.loads(record) | {"captions": self.captions, "tokens": spoken}
        return [(name, json.dumps(whole).encode()), *others]


def make_data(folder: Path, made: Made) -> str:
    """Write the data set and return its folder."""
    random = np.random.default_rng(0)
    meanings = {word: random.standard_normal(made.width) for word in (*COLOURS, *SHAPES, *SIZES)}
    sizes = {"train": made.images, "validation": made.evaluated, "test": made.evaluated}
    splits = {name: _split(folder, name, count, made, meanings, random) for name, count in sizes.items()}
    words = [caption.split() for number in range(made.images) for caption in _captions(number, made)]
    vocabulary = Vocabulary.build(words, min_count=1)
    (folder / VOCABULARY_FILE).write_text(vocabulary.to_json())
    write_manifest(Manifest(
        name="made", splits=splits, images_stored=False, recipe_fingerprint="made", source_sha256=sha256_hex(b"made"),
        features=FeatureInfo(
            extractor="precomputed", regions=made.regions, regions_min=made.regions, width=made.width, boxes=True,
        ),
        vocabulary=VocabularyInfo(
            sha256=sha256_hex((folder / VOCABULARY_FILE).read_bytes()), words=len(vocabulary), min_count=1
        ),
    ), folder)
    return str(folder)


def _split(
    folder: Path, name: str, images: int, made: Made, meanings: dict[str, np.ndarray], random: np.random.Generator
) -> SplitInfo:
    shards = []
    for first in range(0, images, IMAGES_PER_SHARD):
        samples = _samples(range(first, min(images, first + IMAGES_PER_SHARD)), made, meanings, random)
        path = folder / f"{name}-{len(shards):06d}.tar"
        shard = write_shard(path, samples, first_image=first, first_caption=first * CAPTIONS)
        assert shard is not None
        shards.append(shard)
    return SplitInfo(
        images=images, captions=images * CAPTIONS, captions_min=CAPTIONS, captions_max=CAPTIONS,
        captions_mean=CAPTIONS, shards=shards,
    )


def _samples(
    numbers: range, made: Made, meanings: dict[str, np.ndarray], random: np.random.Generator
) -> Iterator[Sample]:
    for number in numbers:
        features = sum(meanings[word] for word in _attributes(number)) / 2
        features = features + NOISE * random.standard_normal((made.regions, made.width))
        low = random.random((made.regions, 2)) / 2
        boxes = np.concatenate((low, low + random.random((made.regions, 2)) / 2), axis=1)
        yield PlainWords(
            number, number * CAPTIONS, f"image-{number}", _captions(number, made), features.astype(np.float16),
            boxes=boxes.astype(np.float32),
        )


def _attributes(number: int) -> tuple[str, str, str]:
    return COLOURS[number % len(COLOURS)], SHAPES[number % len(SHAPES)], SIZES[number % len(SIZES)]


def _captions(number: int, made: Made) -> list[str]:
    """Of different lengths; the first word of each that is no attribute is rare where there are such words."""
    colour, shape, size = _attributes(number)
    place = PLACES[number % len(PLACES)]
    found = [
        f"a {size} {colour} {shape}", f"{shape} {colour}", f"a {colour} {shape} {place}", f"the {size} {shape} {place}",
        f"there is a {size} {shape} that someone painted {colour} and left {place}",
    ]
    if not made.rare:
        return found
    return [f"{caption} word{(number * CAPTIONS + each) % made.rare}" for each, caption in enumerate(found)]
