"""Every chart: a Vega-Lite specification in our theme, drawn by vl-convert, or by its script in a browser."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import vl_convert
from markupsafe import Markup, escape

from vsetune.errors import StorageError
from vsetune.home.whole_files import whole_file

PALETTE = 7
"""Colours of losses (Okabe and Ito, without yellow)."""
DASHES = ((1, 0), (6, 4), (2, 3), (9, 3, 2, 3))
"""Dash patterns of lines: after PALETTE losses the colours repeat with the next pattern and the next point shape."""
SHAPES = ("circle", "square", "triangle-up", "diamond")

LIGHT = {
    "ink": "#1b2129", "soft": "#56606d", "line": "#d9dee5", "c0": "#1b2129", "c1": "#0072b2", "c2": "#c44e00",
    "c3": "#00805f", "c4": "#b3568c", "c5": "#b87d00", "c6": "#2f95cc",
}
"""Colours of the light style sheet by their names there, for files."""
ON_PAGE = {name: f"var(--{name})" for name in LIGHT}
"""The same for charts inside a page: they follow its style sheet, dark or light."""
_FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'


def theme(colours: Mapping[str, str] = ON_PAGE) -> dict[str, Any]:
    """Vega-Lite `config` of every chart. colours: LIGHT or ON_PAGE."""
    ink, soft, line = colours["ink"], colours["soft"], colours["line"]
    return {
        "background": None, "font": _FONT, "view": {"stroke": None}, "text": {"color": ink},
        "axis": {
            "labelColor": soft, "titleColor": soft, "gridColor": line, "domainColor": soft, "tickColor": soft,
            "labelFontSize": 11.5, "titleFontSize": 12, "titleFontWeight": "normal", "gridOpacity": 0.7,
            "labelLimit": 160, "aria": False,
        },
        "axisX": {"grid": False}, "title": {"color": ink, "subtitleColor": soft},
        "legend": {
            "labelColor": ink, "labelFontSize": 12, "symbolStrokeWidth": 2.5, "symbolOpacity": 1, "labelLimit": 180,
            "aria": False,
        },
        "range": {"category": [colours[f"c{index}"] for index in range(PALETTE)]},
    }


def turn_of(index: int) -> int:
    """Number of times that the colours repeat before a loss: the index of its dashes and shape."""
    return index // PALETTE % len(DASHES)


def looks_of(losses: Mapping[str, int], colours: Mapping[str, str]) -> dict[str, Any]:
    """Encoding of the field `loss` by colours and dashes. losses: each with its index among the losses of the page."""
    ranges = {
        "color": [colours[f"c{index % PALETTE}"] for index in losses.values()],
        "strokeDash": [DASHES[turn_of(index)] for index in losses.values()],
    }
    legend = {"title": None, "symbolType": "stroke", "symbolStrokeWidth": 2.5, "symbolSize": 260}
    return {
        channel: {
            "field": "loss", "type": "nominal", "legend": legend, "scale": {"domain": list(losses), "range": values},
        }
        for channel, values in ranges.items()
    }


_MARK = re.compile(
    r'<path aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="[^"]*"([^>]*)/>'
)


def svg(spec: Mapping[str, Any], summary: str) -> Markup:
    """A chart as an <svg> element of a page, which needs no script. summary: the chart in words. What `description`
    encodes becomes the <title> of a mark. Text is escaped."""
    text = vl_convert.vegalite_to_svg({**spec, "config": _merged(theme(), spec.get("config", {}))})
    text = _MARK.sub(r"<path\2><title>\1</title></path>", text)
    return Markup(re.sub(r"<svg [^>]*?(?=width=)", f'<svg role="img" aria-label="{escape(summary)}" ', text, count=1))


def on_white(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A chart with our theme on white, complete in itself."""
    return {**spec, "config": _merged(theme(LIGHT) | {"background": "white"}, spec.get("config", {}))}


PictureKind = Literal["svg", "png"]
_PNG_SCALE = 2.0


def picture(spec: Mapping[str, Any], kind: PictureKind) -> bytes:
    """A chart on white as the content of a file: SVG in UTF-8, or PNG with two pixels per unit of length."""
    whole = on_white(spec)
    if kind == "svg":
        return vl_convert.vegalite_to_svg(whole).encode()
    return bytes(vl_convert.vegalite_to_png(whole, scale=_PNG_SCALE))


def _merged(config: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    return config | {
        key: {**config[key], **value} if isinstance(value, Mapping) and isinstance(config.get(key), Mapping) else value
        for key, value in more.items()
    }


_SNIPPET = "window.vegaEmbed = vegaEmbed;"


@cache
def chart_library() -> str:
    """The content of a <script> that defines `vegaEmbed`: 900 kB, plain, so that charts stand when a page has loaded.

    Bundling takes seconds, so the script is cached in the user's cache folder ($XDG_CACHE_HOME/vsetune, else
    ~/.cache/vsetune). If that cannot be written, every process bundles it again.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "vsetune"
    cached = folder / f"charts-{version('vl-convert-python')}.js.gz"
    try:
        script = gzip.decompress(cached.read_bytes()).decode()
    except (OSError, EOFError, zlib.error):
        script = vl_convert.javascript_bundle(_SNIPPET)
        _write(cached, gzip.compress(script.encode(), mtime=0))
    return "(() => {" + script.replace("</script", "<\\/script") + "})();"


def _write(cached: Path, content: bytes) -> None:
    if not cached.is_absolute():  # the user has no home folder
        return
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(cached, durable=False, by_many=True) as file:
            file.write(content)
    except (OSError, StorageError):
        return  # the next process bundles it again
