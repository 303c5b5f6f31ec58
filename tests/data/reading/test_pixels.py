"""Crops, sizes and flips of single photographs."""

from __future__ import annotations

import io
import math
from random import Random

import numpy as np
import pytest
from PIL import Image
from refusals import refused

from vsetune.config.sources.trial_inputs import PixelInput
from vsetune.data.batches.pixels import decoded, evaluation_pixels, training_crop, training_pixels
from vsetune.data.stored.shards import Photograph

WHOLE = PixelInput(size=4, crop="none", flip=0.0)


def photograph(array: np.ndarray, *, mode: str | None = None, format: str = "png") -> Photograph:
    """array: (height, width, 3) or (height, width) uint8."""
    buffer = io.BytesIO()
    image = Image.fromarray(array)
    (image if mode is None else image.convert(mode)).save(buffer, format=format)
    return Photograph(buffer.getvalue(), "train-000000.tar: sample 3")


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def ramp(height: int, width: int) -> np.ndarray:
    """Red grows with x by 2, green with y by 2."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([2 * columns, 2 * rows, np.zeros_like(rows)], axis=2).astype(np.uint8)


def test_a_photograph_of_the_right_size_comes_through_unchanged():
    array = noise(4, 4)
    made, is_mirrored = training_pixels(photograph(array), WHOLE, Random(0))
    assert made.dtype == np.uint8
    assert made.shape == (1, 3, 4, 4)
    assert np.array_equal(made[0], array.transpose(2, 0, 1))
    assert not is_mirrored


def test_a_mirrored_crop_is_the_mirror_image_of_the_same_crop():
    source = photograph(noise(30, 40))
    plain, _ = training_pixels(source, PixelInput(size=8, flip=0.0), Random(5))
    turned, _ = training_pixels(source, PixelInput(size=8, flip=1.0), Random(5))
    assert np.array_equal(plain[:, :, :, ::-1], turned)


def test_flips_come_with_their_probability():
    source, wanted = photograph(noise(4, 4)), PixelInput(size=4, crop="none", flip=0.3)
    turned = sum(training_pixels(source, wanted, Random(seed))[1] for seed in range(1000))
    assert abs(turned / 1000 - 0.3) < 5 * math.sqrt(0.3 * 0.7 / 1000)


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGB"])
def test_photographs_of_every_mode_become_rgb(mode):
    grey = np.full((5, 7, 3), 100, np.uint8)
    made, _ = training_pixels(photograph(grey, mode=mode, format="jpeg"), WHOLE, Random(0))
    assert made.shape == (1, 3, 4, 4)
    assert np.abs(made.astype(int) - 100).max() <= 3


CUT_OFF = photograph(noise(64, 64)).content[:6000]


@pytest.mark.parametrize("content", [b"no photograph", b"\xff\xd8\xff\xe0 cut", b"", CUT_OFF], ids=range(4))
def test_a_photograph_that_cannot_be_decoded_is_named_in_one_line(content):
    with refused("VSE-D029", where="train-000000.tar: sample 3"):
        decoded(Photograph(content, "train-000000.tar: sample 3"))


def crops(wanted: PixelInput, size: tuple[int, int], number: int = 3000) -> np.ndarray:
    draw = Random(0)
    return np.array([training_crop(wanted, size, draw) for _ in range(number)])


def test_a_random_resized_crop_has_its_share_of_the_area_and_its_aspect():
    x1, y1, x2, y2 = crops(PixelInput(size=224, crop_low=0.2, crop_high=0.5), (500, 400)).T
    share, aspect = (x2 - x1) * (y2 - y1) / (500 * 400), (x2 - x1) / (y2 - y1)
    assert min(x1) >= 0 <= min(y1)
    assert max(x2) <= 500
    assert max(y2) <= 400
    # whole pixels: half a pixel of some 150
    assert (share > 0.2 - 0.002).all()
    assert (share < 0.5 + 0.002).all()
    assert (aspect > 3 / 4 - 0.01).all()
    assert (aspect < 4 / 3 + 0.01).all()
    # nothing is rejected at these shares: uniform in the share, uniform in the logarithm of the aspect
    assert share.mean() == pytest.approx(0.35, abs=5 * 0.3 / math.sqrt(12 * 3000))
    assert np.log(aspect).mean() == pytest.approx(0, abs=5 * 2 * math.log(4 / 3) / math.sqrt(12 * 3000))


def test_places_of_a_crop_reach_every_edge():
    x1, y1, x2, y2 = crops(PixelInput(size=8, crop="square_window", crop_low=0.5, crop_high=0.5), (20, 10)).T
    assert {tuple(pair) for pair in np.stack([x2 - x1, y2 - y1], axis=1)} == {(10, 5)}
    assert set(x1) == set(range(11))
    assert set(y1) == set(range(6))


def test_an_image_in_which_no_random_window_fits_gives_the_nearest_centre():
    """500 x 50 at the whole area: 4/3 times as wide as 50 high, from the middle; and the same upright."""
    whole = PixelInput(size=8, crop_low=1.0, crop_high=1.0)
    assert {tuple(box) for box in crops(whole, (500, 50), 20)} == {(216, 0, 283, 50)}
    assert {tuple(box) for box in crops(whole, (50, 500), 20)} == {(0, 216, 50, 283)}


def test_a_square_window_has_the_same_share_of_both_sides():
    x1, y1, x2, y2 = crops(PixelInput(size=8, crop="square_window", crop_low=0.6, crop_high=1.0), (500, 400)).T
    width, height = (x2 - x1) / 500, (y2 - y1) / 400
    assert np.abs(width - height).max() <= 0.5 / 500 + 0.5 / 400
    assert width.mean() == pytest.approx(0.8, abs=5 * 0.4 / math.sqrt(12 * 3000))
    assert min(width) >= 0.6 - 0.001
    assert max(x2) <= 500


def test_tiny_images_still_give_a_window():
    for crop in ("random_resized", "square_window"):
        boxes = crops(PixelInput(size=4, crop=crop, crop_low=0.01, crop_high=0.02), (1, 2), 50)
        assert (boxes[:, 2] > boxes[:, 0]).all()
        assert (boxes[:, 3] > boxes[:, 1]).all()


def test_evaluation_resizes_the_whole_image_to_the_square():
    """On a slope, the bilinear value of a pixel is the value at its centre: 2 * (12.5 * (i + 1/2) - 1/2) of 100."""
    made = evaluation_pixels(photograph(ramp(50, 100)), PixelInput(size=8, evaluation="square"), Random(0))
    assert made.shape == (1, 3, 8, 8)
    inner = [2 * (12.5 * (i + 0.5) - 0.5) for i in range(1, 7)]
    assert made[0, 0, 3, 1:7].tolist() == pytest.approx(inner, abs=0.6)


def test_the_centre_crop_is_a_resize_of_the_shorter_side_and_a_crop():
    """256 x 320 to 224: nothing is scaled, 16 pixels go above and below, 48 on either side."""
    array = noise(256, 320)
    made = evaluation_pixels(photograph(array), PixelInput(size=224, evaluation="centre_crop"), Random(0))
    assert np.array_equal(made[0], array[16:240, 48:272].transpose(2, 0, 1))
    upright = evaluation_pixels(photograph(array.transpose(1, 0, 2)), PixelInput(size=224, evaluation="centre_crop"),
                                Random(0))
    assert np.array_equal(upright[0], array[16:240, 48:272].transpose(2, 1, 0))


def test_a_scaled_centre_crop_equals_pillow_in_two_steps():
    image = noise(512, 640)
    small = Image.fromarray(image).resize((320, 256), Image.Resampling.BILINEAR).crop((48, 16, 272, 240))
    made = evaluation_pixels(photograph(image), PixelInput(size=224, evaluation="centre_crop"), Random(0))
    assert np.abs(made[0].astype(int) - np.asarray(small).transpose(2, 0, 1)).max() <= 1


def test_several_evaluation_crops_are_training_crops_without_flips():
    source = photograph(ramp(60, 80))
    wanted = PixelInput(size=8, crop="square_window", crop_low=0.5, crop_high=0.6, flip=1.0, evaluation_crops=5)
    made = evaluation_pixels(source, wanted, Random(1))
    assert made.shape == (5, 3, 8, 8)
    assert len({crop.tobytes() for crop in made}) == 5
    assert (np.diff(made[:, 0, 4].astype(int), axis=1) > 0).all()  # red still grows from left to right
    assert np.array_equal(made, evaluation_pixels(source, wanted, Random(1)))
