"""A photograph as a network reads it: pixels, or features by the extractor that made those of its training data."""

from __future__ import annotations

import json
import math
import random
from functools import lru_cache

import torch
from PIL import Image
from pydantic import TypeAdapter

from vsetune.board.gallery.heat_maps import whole_photographs
from vsetune.config.sources.recipe import AnyFeatures
from vsetune.config.sources.trial_inputs import PixelInput
from vsetune.data.batches.pixels import decoded, evaluation_pixels
from vsetune.data.making.shard_making import Extractor, build_extractor, to_float16
from vsetune.data.stored.shards import Photograph
from vsetune.errors import UsageError
from vsetune.networks.importing.stored import StoredNetwork
from vsetune.networks.inputs import ImageInputs
from vsetune.study.model_files import CarriedNetwork
from vsetune.study.recorded_model import feature_inputs

_SPECS: TypeAdapter[AnyFeatures] = TypeAdapter(AnyFeatures)


def photograph_inputs(asked: CarriedNetwork, content: bytes, name: str) -> tuple[ImageInputs, ImageInputs, Image.Image]:
    """(inputs to score, inputs for a heat map, the decoded photograph). The inputs differ for random crops alone.

    DataError for a photograph that cannot be decoded. UsageError for features that no extractor here can make, and for
    a network that reads boxes; ConfigError, with what to install, where the extractor is not installed.
    """
    photograph = Photograph(content, name)
    image = decoded(photograph)
    pixels = asked.described.spec.reads.pixels
    if pixels is not None:
        whole = whole_photographs(pixels)
        assert whole is not None
        return _pixels(asked, photograph, pixels), _pixels(asked, photograph, whole), image
    (features,) = _extractor(_recipe(asked.described)).extract([image])
    inputs = feature_inputs(asked, [to_float16(features, place=name)])
    return inputs, inputs, image


def _pixels(asked: CarriedNetwork, photograph: Photograph, wanted: PixelInput) -> ImageInputs:
    """As in a batch of an evaluation: one region of width 0 beside the pixels."""
    made = evaluation_pixels(photograph, wanted, random.Random("evaluation pixels/0"))
    counts = torch.ones(1, dtype=torch.int64, device=asked.device)
    pixels = torch.from_numpy(made)[None].to(asked.device)
    return ImageInputs(torch.zeros(1, 1, 0, device=asked.device), counts, pixels=pixels)


def _recipe(held: StoredNetwork) -> str:
    """The recipe of the features, as JSON."""
    settings = {name: value for name, value in held.features.items() if name != "vector"}
    extractor = settings.get("extractor")
    if extractor in (None, "precomputed"):
        raise UsageError(
            "VSE-S191", "network {network} reads features made elsewhere ({extractor}), which cannot be made of a "
            "photograph here; ask it with a sentence", network=held.name, extractor=extractor or "an unknown extractor",
        )
    settings["grid"] = math.isqrt(held.regions)
    if extractor == "pixels":
        settings["width"] = held.width
    return json.dumps(settings)


@lru_cache(2)
def _extractor(recipe: str) -> Extractor:
    made = build_extractor(_SPECS.validate_json(recipe))
    assert made is not None
    return made
