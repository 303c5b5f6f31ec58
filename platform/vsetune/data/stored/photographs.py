"""Decoding of pictures from other people, the same for ingest, for training and for `vsetune data verify`."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image, UnidentifiedImageError

from vsetune.data.stored.plain_files import Flaw
from vsetune.errors import one_line

_ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Transformation that turns a picture upright, by the orientation that its camera noted in EXIF."""

MOST_PIXELS = 89_478_485
"""Limit for a picture; as RGB it is a quarter of a gigabyte. Pillow warns beyond it, and decodes up to twice as many.
"""

_OF_DECODERS = (
    OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, LookupError, TypeError, AttributeError,
    ArithmeticError, RuntimeError, MemoryError, Image.DecompressionBombError, Image.DecompressionBombWarning,
)
"""Exceptions that Pillow's decoders have been seen to raise on broken files."""


def rgb_image(picture: bytes | Image.Image) -> Image.Image:
    """The whole picture as RGB, upright and on white as browsers show it. Flaw if it cannot be decoded, exceeds
    MOST_PIXELS or is of a grey whose white value is unknown."""
    try:
        if isinstance(picture, Image.Image):
            return _as_shown(picture)
        with Image.open(io.BytesIO(picture)) as image:
            return _as_shown(image)
    except UnidentifiedImageError as error:
        raise Flaw("no known format") from error
    except _OF_DECODERS as error:
        raise Flaw(one_line(error)) from error


def _as_shown(image: Image.Image) -> Image.Image:
    if image.width * image.height > MOST_PIXELS:
        raise Flaw(f"{image.width} x {image.height} pixels, need at most {MOST_PIXELS:,}")
    image.load()  # Pillow turns a TIFF while it loads it, and then removes its orientation
    turn = _UPRIGHT.get(_orientation(image))
    pixels = _as_rgb(image)
    return pixels if turn is None else pixels.transpose(turn)


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F" or (image.mode == "I" and image.format not in {"PNG", "PPM"}):
        raise Flaw("grey of 32 bits, whose white nothing says; need 8 or 16 bits")
    if image.mode.startswith("I"):  # grey of 16 bits, which Pillow would cut off at 255
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")
    shown = image.convert("RGBA")
    on_white = Image.new("RGB", image.size, "white")
    on_white.paste(shown, mask=shown)
    return on_white


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation; 1, which is upright, if there is none or EXIF is damaged: that does not make a picture
    unreadable."""
    try:
        found = image.getexif().get(_ORIENTATION)
    except _OF_DECODERS:
        return 1
    return found if isinstance(found, int) else 1
