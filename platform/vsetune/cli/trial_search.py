"""`vsetune trial search`: ask a trained network with a sentence or a photograph."""

from __future__ import annotations

import os
import re
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column

from vsetune.cli.options import Device, Json, Split, flag, found_attempts, place_to_write
from vsetune.cli.output import BAD_VALUE, FittingTable, inform, interruptible, print_json, results, stderr
from vsetune.data.stored.storage import read_bytes
from vsetune.errors import UsageError
from vsetune.home.home_files import keep_in_home
from vsetune.home.paths import home
from vsetune.home.whole_files import write_text

if TYPE_CHECKING:
    from vsetune.board.gallery.retrieved import Retrieved
    from vsetune.study.asked_trials import AskedTrial

app = typer.Typer()

_MOST_BYTES = 256 << 20
"""Largest file of a photograph."""
_SHOWN_CAPTIONS = 2
"""Captions of an image in the terminal; the page and JSON have all."""


@app.command(epilog='Example: vsetune trial search quickstart/vsepp.info_nce-c000-s0 "a big blue star"')
def search(
    run: Annotated[str, typer.Argument(
        metavar="RUN_OR_MODEL", help="STUDY/TRIAL (`vsetune study show STUDY --all` lists trials), "
        "STUDY/TRIAL/NUMBER for one of its attempts, STUDY/CELL for the pick that the board shows, or the folder of a "
        "model of `trial model`",
        show_default=False,
    )],
    sentence: Annotated[str | None, typer.Argument(help="finds images", show_default=False)] = None,
    image: Annotated[Path | None, typer.Option(help="photograph, which finds captions", show_default=False)] = None,
    top: Annotated[int, typer.Option(min=1, max=100, help="items to find")] = 10,
    split: Split = None,
    output: Annotated[Path | None, place_to_write(help="page to write; default: under VSETUNE_HOME/queries")] = None,
    no_open: Annotated[bool, flag("--no-open", "do not open the page in the browser")] = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Ask a trial's best network: a sentence finds images, a photograph finds captions. Prints the best items with
    their scores, and writes a page with pictures and heat maps. A photograph goes through the feature extractor of the
    data set. With --json a page is written only to --output."""
    from vsetune.board.gallery.retrieval_page import to_html
    from vsetune.board.gallery.retrieved import Query

    if (sentence is None) == (image is None):
        got = "both" if image else "neither"
        need = "a sentence or --image PHOTOGRAPH"
        raise UsageError(BAD_VALUE(option="trial search", got=got, need=need))
    photograph = None if image is None else read_bytes(str(image), most=_MOST_BYTES)
    query = Query(sentence or "", photograph, image.name if image else "", split or "", top)
    with interruptible("nothing was written"):
        asked = _opened(run, device)
        with stderr.status("asking the network"):
            found = asked.ask(query)
    page = output or (None if as_json else _usual_place(found))
    if page is not None:
        write_text(page, to_html([found]))
        keep_in_home(page)
    if as_json:
        print_json(_plain(found))
        return
    _print(found)
    assert page is not None
    inform(f"page: {page.absolute()}")
    if not no_open and _has_screen():
        webbrowser.open(page.absolute().as_uri())


def _opened(run: str, device: str) -> AskedTrial:
    """The trial of this name, or the model in this folder."""
    from vsetune.study.asked_trials import model_folder, open_model, open_trial
    from vsetune.training.device import choose_device

    place = Path(run).expanduser()
    folder = model_folder(place) if place.is_dir() else None
    with stderr.status("loading the network"):
        if folder is not None:
            return open_model(folder, device=choose_device(device))
        if place.is_dir():
            raise UsageError(
                "VSE-X047", "{place}: no model in this folder (model.json); name one of vsetune trial model, or "
                "STUDY/TRIAL.", place=place,
            )
        store, (attempt,) = found_attempts(run, finished=True)
        return open_trial(store, attempt, device=choose_device(device))


def _print(found: Retrieved) -> None:
    kind = "images" if found.photograph is None else "captions"
    rows = [
        [str(hit.rank), f"{hit.score:.4g}", hit.name, "\n".join(hit.captions[:_SHOWN_CAPTIONS])] for hit in found.hits
    ]
    numbers = [Column(name, justify="right") for name in ("rank", "score")]
    results.print(FittingTable([*numbers, "image", Column("captions", overflow="fold")], rows))
    results.print(f"{found.trial}: best of {found.of:,} {kind} of split {found.split}", style="dim")
    for note in found.notes:
        results.print(note, style="yellow")


def _plain(found: Retrieved) -> dict[str, object]:
    query = found.query
    return {
        "trial": found.trial, "network": found.network, "loss": found.loss, "split": found.split, "of": found.of,
        "query": {"image": query.name} if found.photograph is not None else {"sentence": query.sentence},
        "items": [
            {"rank": hit.rank, "score": hit.score, "image": hit.name, "captions": hit.captions} for hit in found.hits
        ],
        "notes": found.notes,
    }


def _usual_place(found: Retrieved) -> Path:
    """Named by the trial and by the first words of the sentence, or the photograph's file."""
    query = found.query
    words = Path(query.name).stem if query.photograph is not None else query.sentence
    name = re.sub(r"[^a-z0-9]+", "-", words.lower())[:60].strip("-") or "query"
    return home() / "queries" / re.sub(r"[^\w.-]", "_", found.trial).lstrip(".") / f"{name}.html"


def _has_screen() -> bool:
    """Whether somebody is there, with a browser that has windows."""
    has_windows = sys.platform == "darwin" or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())
    return results.is_terminal and has_windows
