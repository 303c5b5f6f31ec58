"""Image preparation of a network that reads photographs: size, crops, flips. Done by `vsetune.data.batches.pixels`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Crop = Literal["none", "random_resized", "square_window"]
"""Crop of a training image. `random_resized`: a window of a random share of the area and aspect ratio 3/4 to 4/3
(VSE++, MSE**). `square_window`: a random window whose two sides are the same random share of the image's sides
(VSE-infinity, Malali and Keller). All are resized to the square afterwards. `none`: the whole image, resized."""


@dataclass(frozen=True)
class PixelInput:
    """Required form of `ImageInputs.pixels`.

    size: pixels per side. crop, crop_low, crop_high: of training images; a share of the area for `random_resized`, of
    the sides for `square_window`. flip: probability that a training image is mirrored. swaps_sides: a mirrored image
    has `left` and `right` swapped in the captions that come with it. evaluation: the whole image resized to the square,
    or its centre after the shorter side became size * 256 / 224. evaluation_crops: number of random windows used
    instead, as in training but never mirrored, the same ones every time; 0: none.
    """

    size: int
    crop: Crop = "random_resized"
    crop_low: float = 0.08
    crop_high: float = 1.0
    flip: float = 0.5
    swaps_sides: bool = False
    evaluation: Literal["square", "centre_crop"] = "square"
    evaluation_crops: int = 0
