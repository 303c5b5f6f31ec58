"""Plotting library of the page: Vega-Lite with Vega, from the package vl-convert."""

from __future__ import annotations

import base64
import gzip
import os
import zlib
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import vl_convert

from vsetune.errors import StorageError
from vsetune.files.whole_files import whole_file

PictureKind = Literal["svg", "png"]
_SNIPPET = "window.vegaEmbed = vegaEmbed;"
_PNG_SCALE = 2.0


@cache
def packed_library() -> str:
    """One script that defines `vegaEmbed`, compressed by gzip, in base64: 400 kB instead of 900.

    Bundling takes seconds, so the script is cached in the user's cache folder ($XDG_CACHE_HOME/vsetune, else
    ~/.cache/vsetune). If that cannot be written, every process bundles it again.
    """
    kept = _cache_folder() / f"charts-{version('vl-convert-python')}.js.gz"
    content = _sound(kept)
    if content is None:
        script = vl_convert.javascript_bundle(_SNIPPET)
        content = gzip.compress(script.encode(), mtime=0)
        if kept.is_absolute():
            _keep(kept, content)
    return base64.b64encode(content).decode()


def picture(spec: dict[str, Any], kind: PictureKind) -> bytes:
    """A Vega-Lite plot as the content of a file: SVG in UTF-8, or PNG with two pixels per unit of length."""
    if kind == "svg":
        return vl_convert.vegalite_to_svg(spec).encode()
    return bytes(vl_convert.vegalite_to_png(spec, scale=_PNG_SCALE))


def _cache_folder() -> Path:
    """The cache folder; a relative path if the user has no home folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "vsetune"


def _sound(kept: Path) -> bytes | None:
    """Content of the cached file; None if it is missing or not valid gzip."""
    try:
        content = kept.read_bytes()
        gzip.decompress(content)
    except (OSError, EOFError, zlib.error):
        return None
    return content


def _keep(kept: Path, content: bytes) -> None:
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(kept, durable=False, by_many=True) as file:
            file.write(content)
    except (OSError, StorageError):
        return  # the next process bundles it again
