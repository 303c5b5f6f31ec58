"""Plots of performance profiles, for the page and as files, with Vega-Lite from the package vl-convert."""

from __future__ import annotations

import base64
import gzip
import os
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import vl_convert

from vsetune.errors import StorageError
from vsetune.report import wording
from vsetune.report.charts import DASHES, PALETTE, loss_colours, turn_of
from vsetune.report.many_studies import ManyBoards
from vsetune.report.rows import Leaderboard, LossProfile, TimeProfile
from vsetune.report.terminal import profile_table
from vsetune.storage.whole_files import whole_file

COLOURS = ("#1b2129", "#0072b2", "#c44e00", "#00805f", "#b3568c", "#b87d00", "#2f95cc")
"""Colours of the page's light style sheet, in its order."""
_LINE_LENGTH = 92
_APART, _ALL_APART = 3.0, 12.0
"""Pixels between neighbouring lines, and the most from the first to the last."""
_SIDE_BY_SIDE = "Lines that coincide are plotted side by side."


def profile_chart(profile: TimeProfile | None, baseline: str) -> dict[str, Any] | None:
    """Share of the tasks on which a loss is within a factor of the fastest loss; None for fewer than two tasks. spec:
    for Vega-Lite, without the colours of the losses."""
    table = profile_table(profile, baseline)
    if table is None or profile is None:
        return None
    lines = [
        {
            "loss": each.loss, "score": each.score, "words": f"{each.loss}: score {wording.fixed(each.score, 2)}",
            "steps": _steps(each, profile.largest_factor),
        }
        for each in profile.losses
    ]
    return {
        "title": table.title, "notes": table.notes, "unit": profile.unit, "lines": lines, "spec": _spec(profile, lines),
        "aside": f"{len(profile.tasks)} tasks, there with {profile.hit_words} of the seeds",
    }


def profiles_of(shown: Leaderboard | ManyBoards) -> list[tuple[TimeProfile, str]]:
    """The profiles to plot, each with its baseline: over all data sets, or without such a profile over the networks of
    each board."""
    boards = shown.boards if isinstance(shown, ManyBoards) else (shown,)
    over_all = [(profile, boards[0].baseline) for profile in _both(shown)]
    return over_all or [(profile, board.baseline) for board in boards for profile in _both(board)]


def _both(shown: Leaderboard | ManyBoards) -> list[TimeProfile]:
    return [profile for profile in (shown.profile, shown.seconds_profile) if profile is not None]


def profile_picture(
    profiles: Sequence[tuple[TimeProfile, str]], boards: Sequence[Leaderboard], kind: PictureKind
) -> bytes | None:
    """The profiles one below the other on white, each with its title and the losses and tasks left out; None where none
    has two tasks. profiles: with their baselines. boards: of the profiles; losses look as on the page of the boards."""
    charts = [chart for profile, baseline in profiles if (chart := profile_chart(profile, baseline)) is not None]
    if not charts:
        return None
    drawn = {line["loss"] for chart in charts for line in chart["lines"]}
    encoding = _of_losses({loss: look for loss, look in loss_colours(*boards).items() if loss in drawn})
    panels = [{**chart["spec"], "width": 520, "encoding": encoding, "title": _title(chart)} for chart in charts]
    return picture({"vconcat": panels, "background": "white", "config": {"view": {"stroke": None}}}, kind)


def _of_losses(losses: Mapping[str, int]) -> dict[str, Any]:
    """losses: each with its index among the losses of the page."""
    dashes = [DASHES[turn_of(index)] for index in losses.values()]
    ranges = {"color": [COLOURS[index % PALETTE] for index in losses.values()], "strokeDash": dashes}
    legend = {"title": None, "symbolType": "stroke", "symbolStrokeWidth": 2.5, "symbolSize": 260}
    return {
        channel: {
            "field": "loss", "type": "nominal", "legend": legend, "scale": {"domain": list(losses), "range": values},
        }
        for channel, values in ranges.items()
    }


def _title(chart: dict[str, Any]) -> dict[str, Any]:
    notes = (*chart["notes"], _SIDE_BY_SIDE)
    return {
        "text": _wrapped(chart["title"]), "subtitle": [line for note in notes for line in _wrapped(note)],
        "anchor": "start", "fontSize": 13, "subtitleFontSize": 10.5, "subtitlePadding": 4, "offset": 10,
    }


def _steps(each: LossProfile, largest: float) -> list[tuple[float, float]]:
    """Corners of the line, from (1, 0) to the largest factor; steps beyond it are not plotted."""
    drawn = [step for step in each.steps if step[0] <= largest]
    return [(1.0, 0.0), *drawn, (largest, drawn[-1][1])]


def _spec(profile: TimeProfile, lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A layer for each line. With few tasks many lines coincide, so each is shifted by some pixels: the higher its
    score, the further up and left."""
    values = [
        {"loss": line["loss"], "words": line["words"], "tau": tau, "share": share, "order": order}
        for line in lines for order, (tau, share) in enumerate(line["steps"])
    ]
    apart = min(_APART, _ALL_APART / max(len(lines) - 1, 1))
    shifts = [apart * (place - (len(lines) - 1) / 2) for place in range(len(lines))]
    encoding = {
        "x": {
            "field": "tau", "type": "quantitative", "scale": {"domain": [1, profile.largest_factor]},
            "axis": {"offset": _ALL_APART / 2}, "title": f"factor of the {profile.unit} of the fastest loss",
        },
        "y": {
            "field": "share", "type": "quantitative", "scale": {"domain": [0, 1]},
            "axis": {"format": ".0%", "tickCount": 6, "offset": _ALL_APART / 2}, "title": "share of the tasks",
        },
        "order": {"field": "order"}, "tooltip": {"field": "words", "type": "nominal"},
    }
    return {
        "height": 240, "data": {"values": values}, "layer": [
            {
                "transform": [{"filter": {"field": "loss", "equal": line["loss"]}}], "encoding": encoding,
                "mark": {
                    "type": "line", "interpolate": "step-after", "strokeWidth": 2.4, "xOffset": shift, "yOffset": shift,
                },
            }
            for line, shift in zip(lines, shifts, strict=True)
        ],
    }


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _LINE_LENGTH)


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
