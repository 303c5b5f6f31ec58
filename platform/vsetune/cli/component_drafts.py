"""`vsetune losses new` and `vsetune networks new`: a folder to start a new component from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from vsetune.cli.output import place_to_write, results, say
from vsetune.quality.drafts import write_draft

LOSS_EXAMPLE = "Example: vsetune losses new my_loss"
NETWORK_EXAMPLE = "Example: vsetune networks new my_network"

NewName = Annotated[str, typer.Argument(help="what study files will call it, e.g. my_own", show_default=False)]
Parent = Annotated[Path, place_to_write("--folder", metavar="DIR", help="where the folder NAME is made")]


def new_loss(name: NewName, folder: Parent = Path()) -> None:
    """Write a commented loss of your own that works, with its test: a folder to change."""
    _write("loss", name, folder)


def new_network(name: NewName, folder: Parent = Path()) -> None:
    """Write a commented network of your own that works, with its test: a folder to change."""
    _write("network", name, folder)


def _write(kind: Literal["loss", "network"], name: str, parent: Path) -> None:
    written = write_draft(kind, name, parent)
    for file in written:
        results.out(str(file), highlight=False)
    folder, noun = written[0].parent, {"loss": "losses", "network": "networks"}[kind]
    say(f"next: change {folder}/{kind}.py, then vsetune {noun} check {folder}")
    say(f"in a study file: plugins: [{folder.name}], and {noun}: [{{name: {name}}}]; the path starts at that file")
