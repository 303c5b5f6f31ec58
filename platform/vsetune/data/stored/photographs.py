"""Decoding of pictures that other people encoded, for ingest, for training and for `vsetune data verify` alike."""

from __future__ import annotations

import io
import struct
import zlib

from PIL import Image, UnidentifiedImageError

from vsetune.config.spec.foreign_text import one_line
from vsetune.data.stored.flaws import Flaw

MOST_PIXELS = 89_478_485
"""Of a picture; as RGB that is a quarter of a gigabyte. Pillow warns beyond it, and decodes up to twice as many."""

_OF_DECODERS = (
    OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, LookupError, TypeError, AttributeError,
    ArithmeticError, RuntimeError, MemoryError, Image.DecompressionBombError, Image.DecompressionBombWarning,
)
"""What Pillow's decoders have been seen to raise on broken files."""


def rgb_image(content: bytes) -> Image.Image:
    """The whole picture as RGB. Flaw when it cannot be decoded, or is larger than MOST_PIXELS."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            if image.width * image.height > MOST_PIXELS:
                raise Flaw(f"{image.width} x {image.height} pixels, need at most {MOST_PIXELS:,}")
            return image.convert("RGB")
    except UnidentifiedImageError as error:
        raise Flaw("no known format") from error
    except _OF_DECODERS as error:
        raise Flaw(one_line(error)) from error
