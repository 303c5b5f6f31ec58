"""Decoding of pictures as cameras, browsers and drawing programs write them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from vsetune.data.stored.photographs import rgb_image
from vsetune.data.stored.plain_files import Flaw


def encoded(image: Image.Image, format_: str, *, orientation: int | None = None, **options: object) -> bytes:
    buffer = io.BytesIO()
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    image.save(buffer, format=format_, exif=exif, **options)
    return buffer.getvalue()


@pytest.fixture
def uneven() -> Image.Image:
    """Six by four pixels, none like another."""
    return Image.fromarray(np.arange(72, dtype=np.uint8).reshape(4, 6, 3))


AS_HELD = {
    1: lambda rows: rows, 2: np.fliplr, 3: lambda rows: rows[::-1, ::-1], 4: np.flipud,
    5: lambda rows: rows.swapaxes(0, 1), 6: lambda rows: np.rot90(rows, -1),
    7: lambda rows: rows[::-1, ::-1].swapaxes(0, 1), 8: np.rot90,
}
"""What turns the stored rows upright, by orientation."""


@pytest.mark.parametrize("orientation", AS_HELD)
@pytest.mark.parametrize(
    ("format_", "options"),
    [
        ("JPEG", {}), ("PNG", {}), ("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"}), ("WEBP", {"lossless": True}),
        ("MPO", {}),
    ],
    ids=str,
)
def test_a_photograph_is_turned_as_its_camera_was_held(uneven, format_, options, orientation) -> None:
    stored = encoded(uneven, format_, **options)
    content = encoded(uneven, format_, orientation=orientation, **options)
    assert np.array_equal(np.asarray(rgb_image(content)), AS_HELD[orientation](np.asarray(rgb_image(stored))))


@pytest.mark.parametrize("orientation", [0, 9, 65_535])
def test_an_orientation_that_means_nothing_turns_nothing(uneven: Image.Image, orientation: int) -> None:
    found = rgb_image(encoded(uneven, "PNG", orientation=orientation))
    assert np.array_equal(np.asarray(found), np.asarray(uneven))


def test_damaged_notes_of_a_camera_do_not_make_a_picture_unreadable(uneven: Image.Image) -> None:
    content = encoded(uneven, "JPEG", orientation=6)
    start = content.index(b"Exif\0\0") + 6
    for damage in (b"XX", b"MM", b"\xff" * 8):
        rgb_image(content[:start] + damage + content[start + len(damage) :])


def half_transparent(mode: str) -> Image.Image:
    """Ten by two pixels: red below, something else under full transparency above."""
    pixels = np.zeros((2, 10, 4), dtype=np.uint8)
    pixels[0] = (7, 90, 200, 0)
    pixels[1] = (200, 30, 30, 255)
    image = Image.fromarray(pixels)
    return image.quantize(4) if mode == "P" else image.convert(mode)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("mode", "format_"), [("RGBA", "PNG"), ("LA", "PNG"), ("P", "PNG"), ("RGBA", "WEBP"), ("RGBA", "TIFF")]
)
def test_what_is_transparent_is_white_as_in_a_browser(mode: str, format_: str) -> None:
    image = half_transparent(mode)
    lossless = {"lossless": True} if format_ == "WEBP" else {}
    buffer = io.BytesIO()
    image.save(buffer, format=format_, **lossless)
    found = np.asarray(rgb_image(buffer.getvalue()))
    assert (found[0] == 255).all()
    assert np.array_equal(found[1], np.asarray(image.convert("RGB"))[1])


def test_a_colour_that_stands_for_transparent_is_white(uneven: Image.Image) -> None:
    buffer = io.BytesIO()
    uneven.save(buffer, format="PNG", transparency=uneven.getpixel((0, 0)))
    found = np.asarray(rgb_image(buffer.getvalue()))
    assert found[0, 0].tolist() == [255, 255, 255]
    assert np.array_equal(found.reshape(-1, 3)[1:], np.asarray(uneven).reshape(-1, 3)[1:])


def test_what_is_half_transparent_is_half_white() -> None:
    found = rgb_image(encoded(Image.new("RGBA", (3, 3), (100, 0, 255, 51)), "PNG"))
    assert found.getpixel((1, 1)) == (224, 204, 255)


def test_a_picture_without_a_transparent_pixel_is_as_it_is(uneven: Image.Image) -> None:
    opaque = np.dstack([np.asarray(uneven), np.full((4, 6), 255, dtype=np.uint8)])
    assert np.array_equal(np.asarray(rgb_image(encoded(Image.fromarray(opaque), "PNG"))), np.asarray(uneven))


@pytest.mark.parametrize("format_", ["PNG", "TIFF", "PPM"])
def test_grey_of_16_bits_is_the_same_grey_of_8(format_: str) -> None:
    """257 steps of 16 bits are one of 8."""
    grey = np.arange(0, 256, 5, dtype=np.uint16).reshape(2, -1)
    buffer = io.BytesIO()
    Image.fromarray(grey * 257).save(buffer, format=format_)
    found = np.asarray(rgb_image(buffer.getvalue()))
    assert np.array_equal(found, np.repeat(grey[..., None], 3, axis=2))


@pytest.mark.parametrize(("dtype", "format_"), [(np.float32, "TIFF"), (np.float32, "PPM"), (np.int32, "TIFF")])
def test_pixels_whose_white_is_unknown_are_refused(dtype: type, format_: str) -> None:
    content = encoded(Image.fromarray(np.full((4, 4), 70_000, dtype=dtype)), format_)
    with pytest.raises(Flaw, match=r"grey of 32 bits, whose white nothing says; need 8 or 16 bits"):
        rgb_image(content)
