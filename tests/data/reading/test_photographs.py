"""Decoding of pictures as cameras, browsers and drawing programs write them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from vsetune.data.stored.photographs import rgb_image


def encoded(image: Image.Image, format_: str, *, orientation: int | None = None) -> bytes:
    buffer = io.BytesIO()
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    image.save(buffer, format=format_, exif=exif)
    return buffer.getvalue()


@pytest.fixture
def uneven() -> Image.Image:
    """Six by four pixels, none like another."""
    return Image.fromarray(np.arange(72, dtype=np.uint8).reshape(4, 6, 3))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format_", ["JPEG", "PNG"])
def test_a_photograph_is_turned_as_its_camera_was_held(uneven: Image.Image, format_: str, orientation: int) -> None:
    content = encoded(uneven, format_, orientation=orientation)
    shown = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    assert np.array_equal(np.asarray(rgb_image(content)), np.asarray(shown))


@pytest.mark.parametrize("orientation", [0, 9, 65_535])
def test_an_orientation_that_means_nothing_turns_nothing(uneven: Image.Image, orientation: int) -> None:
    found = rgb_image(encoded(uneven, "PNG", orientation=orientation))
    assert np.array_equal(np.asarray(found), np.asarray(uneven))


def test_damaged_notes_of_a_camera_do_not_make_a_picture_unreadable(uneven: Image.Image) -> None:
    content = encoded(uneven, "JPEG", orientation=6)
    start = content.index(b"Exif\0\0") + 6
    for damage in (b"XX", b"MM", b"\xff" * 8):
        rgb_image(content[:start] + damage + content[start + len(damage) :])


def test_a_picture_in_cmyk_is_rgb(uneven: Image.Image) -> None:
    found = rgb_image(encoded(uneven.convert("CMYK"), "JPEG"))
    assert (found.mode, found.size) == ("RGB", (6, 4))
