"""`vsetune quickstart`: the study that comes with the package, on data that it makes; needs no file and no checkout."""

from __future__ import annotations

from pathlib import Path

import typer

from vsetune.cli.study import run_file

app = typer.Typer()
STUDY_FILE = Path(__file__).with_name("quickstart.yaml")
"""A link to studies/quickstart.yaml in a checkout, a file in an installed package."""


@app.command(epilog="Example: vsetune quickstart")
def quickstart() -> None:
    """Compare three losses on generated images, in minutes on two cores: makes the data, trains every loss over the
    same seeds, shows the leaderboard.

    The losses are lsh (hinge over all negatives), lmh (hinge on the hardest negative) and info_nce (softmax).

    The same command goes on after an interruption, and shows the result again once all has run. Exit codes are those of
    `vsetune study run`.
    """
    run_file(STUDY_FILE, resume=True, again="vsetune quickstart")
