"""A tiny data set that can be learnt, and trials on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from home_of_a_module import home_of_a_module
from PIL import Image

from vsetune.config.study.training import TrialSpec
from vsetune.data.making.raw import png_bytes
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

__all__ = ["home_of_a_module"]

COLOURS = ("red", "green", "blue", "white")
SHAPES = ("circle", "square", "star")
SIZES = ("small", "large")
REGIONS, WIDTH, CAPTIONS = 4, 12, 2
IMAGES = {"train": 21, "validation": 12, "test": 12}
IMAGES_PER_SHARD = 9


def _captions(number: int) -> tuple[str, str]:
    first = f"a {SIZES[number % 2]} {COLOURS[number % 4]} {SHAPES[number % 3]}"
    return first, f"{first} lies here on the table"


def _samples(numbers: range, rng: np.random.Generator) -> Iterator[Sample]:
    """Images of coloured shapes: features (with some noise), photographs and captions name colour, shape and size."""
    for number in numbers:
        features = 0.05 * rng.normal(size=(REGIONS, WIDTH))
        features[:, number % 4] += 1
        features[:, 4 + number % 3] += 1
        features[:, 8 + number % 2] += 1
        image = _photograph(number), "png"
        yield Sample(number, number * CAPTIONS, f"image-{number}", _captions(number), features.astype(np.float16),
                     image=image)


def _photograph(number: int) -> bytes:
    """12 x 10 pixels whose three colours tell colour, shape and size; the left half is brighter."""
    pixels = np.empty((10, 12, 3), np.uint8)
    pixels[:] = 40 * (number % 4), 60 * (number % 3), 90 * (number % 2)
    pixels[:, :6] += 50
    return png_bytes(Image.fromarray(pixels))


def _split(folder: Path, name: str, images: int, rng: np.random.Generator) -> SplitInfo:
    shards = []
    for start in range(0, images, IMAGES_PER_SHARD):
        samples = _samples(range(start, min(images, start + IMAGES_PER_SHARD)), rng)
        path = folder / f"{name}-{len(shards):06d}.tar"
        shard = write_shard(path, samples, first_image=start, first_caption=start * CAPTIONS)
        assert shard is not None
        shards.append(shard)
    return SplitInfo(
        images=images, captions=images * CAPTIONS, captions_min=CAPTIONS, captions_max=CAPTIONS,
        captions_mean=CAPTIONS, shards=shards,
    )


@pytest.fixture(scope="session")
def data_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A data set folder: 42 train pairs of 21 images in three shards, 12 images each for validation and test."""
    folder, rng = tmp_path_factory.mktemp("shapes"), np.random.default_rng(0)
    splits = {name: _split(folder, name, images, rng) for name, images in IMAGES.items()}
    words = [caption.split() for number in range(IMAGES["train"]) for caption in _captions(number)]
    vocabulary = Vocabulary.build(words, min_count=1)
    (folder / VOCABULARY_FILE).write_text(vocabulary.to_json())
    digest = sha256_hex((folder / VOCABULARY_FILE).read_bytes())
    manifest = Manifest(
        name="shapes", splits=splits, images_stored=True, recipe_fingerprint="shapes",
        source_sha256=sha256_hex(b"shapes"),
        features=FeatureInfo(extractor="precomputed", regions=REGIONS, regions_min=REGIONS, width=WIDTH),
        vocabulary=VocabularyInfo(sha256=digest, words=len(vocabulary), min_count=1),
    )
    write_manifest(manifest, folder)
    return str(folder)


MakeTrial = Callable[..., TrialSpec]
SMALL: dict[str, dict[str, Any]] = {
    "vsepp": {}, "vsrn": {"captioning_size": 6}, "vse_infinity": {"pooling_size": 4}, "scan": {},
    "sgraf_saf": {"similarity_size": 6}, "sgraf_sgr": {"similarity_size": 6},
    "gsmn": {"blocks": 2, "kernels": 2, "hidden_size": 4}, "pvse": {}, "pcme": {"samples": 3},
    "cgmn": {"caption_graph": "dense"}, "mse": {}, "malali_keller": {}, "dual_encoder": {"layers": 1, "heads": 2},
    "tags": {"layers": 2, "heads": 2, "masked_copies": 2, "refills": 2, "synthetic_negatives": 3},
}


@pytest.fixture(scope="session")
def small() -> Callable[[str], dict[str, Any]]:
    """small(name): settings of each network, 8 wide, for the tiny data."""
    return lambda name: {"name": name, "embedding_size": 8, "word_size": 6} | SMALL[name]


@pytest.fixture(scope="session")
def make_trial(data_path: str) -> MakeTrial:
    """Trials of VSE++ 8 wide on the tiny data, batches of 8: 6 steps per epoch, the last one short (2 pairs).

    Keyword arguments change the trial (`loss`, `network`, `seed`, `data`); all others change `training`.
    """

    def make(
        *, loss: dict[str, Any] | None = None, network: dict[str, Any] | None = None,
        data: dict[str, Any] | None = None, seed: int = 0, **training: Any,
    ) -> TrialSpec:
        recipe = {"epochs": 2.0, "batch_size": 8, "learning_rate": 0.01, "shuffle_pairs": 16}
        vsepp = {"name": "vsepp", "embedding_size": 8, "word_size": 6}
        return TrialSpec.model_validate({
            "study": "tiny", "trial": "vsepp.lmh-c00-s0", "cell": "vsepp.lmh", "seed": seed,
            "data": {"path": data_path, **(data or {})},
            "network": network or vsepp, "loss": loss or {"name": "lmh"}, "training": recipe | training,
        })

    return make
