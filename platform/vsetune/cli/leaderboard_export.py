"""`vsetune leaderboard export`: boards as files for people and other programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from vsetune.cli.leaderboard_reading import Baseline, Every, HitShare, ReadBoards, StudyNames, read_boards
from vsetune.cli.leaderboard_serve import MlflowUrl, mlflow_url
from vsetune.cli.output import mlflow_server, place_to_write, say
from vsetune.config.spec.paths import home
from vsetune.errors import UsageError
from vsetune.files.whole_files import write_text

if TYPE_CHECKING:
    from vsetune.leaderboard.chart_library import PictureKind

EXPORT_EXAMPLE = (
    "Example: vsetune leaderboard export quickstart --html board.html --latex table.tex; "
    "vsetune leaderboard export one two --profile profiles.svg --hit-share 0.75"
)


def export(
    study: StudyNames = None,
    every: Every = False,
    html: Annotated[Path | None, place_to_write(help="one self-contained page with curves")] = None,
    csv: Annotated[Path | None, place_to_write(help="one line per cell, full precision")] = None,
    json: Annotated[Path | None, place_to_write(help="everything, curves included")] = None,
    markdown: Annotated[Path | None, place_to_write(help="table for issues and wikis")] = None,
    curves: Annotated[Path | None, place_to_write(help="CSV with one line per validation")] = None,
    latex: Annotated[Path | None, place_to_write(help="table for the booktabs package")] = None,
    profile: Annotated[
        Path | None, place_to_write(help="performance profiles over networks and data sets, .svg or .png")
    ] = None,
    hit_share: HitShare = None,
    mlflow: MlflowUrl = None,
    baseline: Baseline = None,
) -> None:
    """Write the leaderboard of a study, or those of several by data set, to files; without options, the page to
    VSETUNE_HOME/leaderboards."""
    from vsetune.config.study.study_spec import TrackingSpec
    from vsetune.jobs.store_address import tracking_uri as store_uri
    from vsetune.jobs.study_page import study_page
    from vsetune.object_storage.home_files import keep_in_home

    kind = None if profile is None else _picture_kind(profile)
    uri = store_uri(TrackingSpec())
    ui = mlflow_url(mlflow, uri)
    read = read_boards("export", study or [], every=every, baseline=baseline, hit_share=hit_share)
    if not (html or csv or json or curves or latex or markdown or profile):
        html = home() / "leaderboards" / f"{read.name}.html"
    wanted: list[tuple[Path | None, Callable[[], str | bytes]]] = [
        (html, lambda: study_page(read.store, read.shown, read.attempts, mlflow_url=ui)),
        (csv, lambda: _text("csv", read)), (json, lambda: _json(read)), (markdown, lambda: _text("md", read)),
        (curves, lambda: _curves(read)), (latex, lambda: _text("tex", read)),
        (profile, lambda: _profiles(read, profile, kind)),
    ]
    for path, content in [(path, made()) for path, made in wanted if path is not None]:
        write_text(path, content)
        say(f"written: {path.absolute()}")
        keep_in_home(path)
    server = mlflow_server(uri) if html is not None and ui is None else None
    if server is not None:
        say(f"runs in the MLflow UI: {server}  (with --mlflow http://127.0.0.1:5000 the page links to them)")


def _text(kind: str, read: ReadBoards) -> str:
    from vsetune.leaderboard.columns import COLUMNS
    from vsetune.leaderboard.many_export import TEXTS

    return TEXTS[kind](read.shown, COLUMNS).whole()


def _json(read: ReadBoards) -> str:
    from vsetune.leaderboard.many_export import shown_to_json

    return shown_to_json(read.shown)


def _curves(read: ReadBoards) -> str:
    from vsetune.leaderboard.many_export import curves_of_boards
    from vsetune.leaderboard.page import boards_of

    return curves_of_boards(boards_of(read.shown))


def _picture_kind(profile: Path) -> PictureKind:
    match profile.suffix.lower():
        case ".svg":
            return "svg"
        case ".png":
            return "png"
    raise UsageError(f"leaderboard export: --profile {profile}: got {profile.suffix or 'no ending'}, need .svg or .png")


def _profiles(read: ReadBoards, path: Path | None, kind: PictureKind | None) -> bytes:
    from vsetune.leaderboard.page import boards_of
    from vsetune.leaderboard.profile_charts import profile_picture, profiles_of

    made = profile_picture(profiles_of(read.shown), boards_of(read.shown), kind or "svg")
    if made is None:
        raise UsageError(
            f"leaderboard export: --profile {path}: got fewer than two networks or data sets on which a loss compares "
            "with the baseline by finished seeds that chose nothing; need two (vsetune study confirm runs such seeds)"
        )
    return made
