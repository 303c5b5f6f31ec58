"""`vsetune data`: make, ingest, check and look at data sets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from vsetune.cli.output import interruptible, messages, print_json, results, say
from vsetune.config.paths import home, under_home

app = typer.Typer(
    no_args_is_help=True, help="Make, ingest, check and look at data sets.",
    epilog="Example: vsetune data show data/scenes",
)

DataPath = Annotated[
    str, typer.Argument(help="folder or s3:// prefix; relative: under VSETUNE_HOME", show_default=False)
]


@app.command("make-scenes", epilog="Example: vsetune data make-scenes --train 2000")
def make_scenes(
    output: Annotated[str, typer.Option(help="folder; relative: under VSETUNE_HOME")] = "data/scenes",
    train: Annotated[int, typer.Option(help="images, five captions each")] = 2000,
    validation: Annotated[int, typer.Option(help="images")] = 400,
    test: Annotated[int, typer.Option(help="images")] = 400,
    seed: Annotated[int, typer.Option(help="everything is a function of it")] = 0,
) -> None:
    """Make the embedded data set: drawn scenes with captions, no download."""
    from vsetune.config.loading import parse_spec
    from vsetune.config.study import ScenesSpec
    from vsetune.jobs.preparation import make_scenes as make

    sizes = {"train": train, "validation": validation, "test": test, "seed": seed}
    folder = Path(under_home(output))
    with interruptible("the same command goes on"):
        make(folder, parse_spec(sizes, ScenesSpec, where="make-scenes"), messages)
    say(f"{folder}: {train} + {validation} + {test} images; in a study: data.path {output}")


@app.command(epilog="Example: VSETUNE_FLICKR8K=~/flickr8k vsetune data ingest studies/data/flickr8k.yaml")
def ingest(recipe: Annotated[Path, typer.Argument(help="ingest recipe (YAML)", show_default=False)]) -> None:
    """Turn raw images, captions or features into shards. Killed at any moment, the same command goes on."""
    from vsetune.config.data import IngestRecipe
    from vsetune.config.loading import load_spec
    from vsetune.data.ingest import ingest as run_ingest
    from vsetune.data.ingest import output_folder
    from vsetune.data.progress import terminal_progress

    loaded = load_spec(recipe, IngestRecipe)
    with interruptible("the same command goes on"), terminal_progress(messages) as progress:
        manifest = run_ingest(loaded, progress=progress)
    for name, split in manifest.splits.items():
        say(f"{name}: {split.images:,} images, {split.captions:,} captions, {len(split.shards)} shards")
    for note in manifest.notes:
        say(note)
    say(f"written: {output_folder(loaded)}")


@app.command(epilog="Example: vsetune data verify data/scenes")
def verify(path: DataPath) -> None:
    """Check hashes, counts and contents of every shard. Exit code 2 if something is wrong."""
    from vsetune.data.verify import verify as run_verify

    with messages.status("checking"):
        problems = run_verify(under_home(path))
    for problem in problems:
        results.print(problem, soft_wrap=True, highlight=False, markup=False)
    if problems:
        raise typer.Exit(2)
    say(f"{under_home(path)}: everything is as the manifest says")


@app.command(epilog="Example: vsetune data show data/scenes --split validation")
def show(
    path: DataPath,
    split: Annotated[str, typer.Option(help="split of the contact sheet")] = "train",
    count: Annotated[int, typer.Option(min=1, max=200, help="images on the contact sheet")] = 12,
    sheet: Annotated[Path | None, typer.Option(help="contact sheet to write; default: under VSETUNE_HOME")] = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="only the summary, as JSON")] = False,
) -> None:
    """Print what a data set holds and write a contact sheet of images with their captions."""
    from vsetune.data.show import contact_sheet
    from vsetune.data.verify import load_manifest, summary

    where = under_home(path)
    if as_json:
        print_json([asdict(each) for each in summary(where)])
        return
    manifest = load_manifest(where)
    features = manifest.features
    table = Table("split", "images", "captions", "captions per image", "shards", "MiB", title_justify="left")
    table.title = f"{manifest.name}: {features.regions} regions x {features.width}, {features.extractor}"
    for each in summary(where):
        table.add_row(
            each.split, f"{each.images:,}", f"{each.captions:,}", f"{each.captions_mean:g}", str(each.shards),
            f"{each.bytes / 2**20:,.1f}",
        )
    results.print(table)
    target = sheet or home() / "sheets" / f"{Path(where).name}-{split}.png"
    shown = contact_sheet(where, split, target, count=count)
    say(f"contact sheet of {shown} images: {target}")
