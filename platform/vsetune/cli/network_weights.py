"""`vsetune networks evaluate` and `import`: weights on any data set that they can read."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vsetune.cli.options import DataPath, Device, Json, found_attempts, place_to_write, require_known
from vsetune.cli.output import complain, inform, interruptible, print_json, recall_table, results, scoring
from vsetune.config.spec.loading import dump_yaml, parse_spec
from vsetune.config.study.evaluation_settings import EvaluationSpec
from vsetune.errors import Problem, UsageError
from vsetune.home.paths import under_home
from vsetune.home.whole_files import make_folder, write_whole
from vsetune.study.kept_plugins import load_kept

if TYPE_CHECKING:
    from vsetune.networks.importing.imported import Imported
    from vsetune.networks.importing.stored import StoredNetwork


app = typer.Typer()


@app.command(
    "evaluate", epilog="Example: vsetune networks evaluate quickstart/vsepp.info_nce-c000-s0 data/scenes --split test"
)
def evaluate_network(
    weights: Annotated[str, typer.Argument(
        help="weights.safetensors of `networks import`, best.safetensors of a trial, or STUDY/TRIAL",
        show_default=False,
    )],
    data: DataPath,
    split: Annotated[str, typer.Option(help="which to score")] = "test",
    coco_captions: Annotated[Path | None, typer.Option(
        metavar="FILE", show_default=False,
        help="Karpathy's dataset_coco.json, for the ids of captions; --eccv-caption and --cxc need it",
    )] = None,
    eccv_caption: Annotated[Path | None, typer.Option(
        metavar="FOLDER", show_default=False,
        help="also mAP@R, R-Precision and R@1 of ECCV Caption, by its two eccv_*.json files",
    )] = None,
    cxc: Annotated[Path | None, typer.Option(
        metavar="PATH", show_default=False,
        help="also recalls of Crisscrossed Captions, by its sits_test.csv, or by its folder: captions by captions and "
        "images by images too",
    )] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Score imported weights, or the best weights of a trial, on a split of a data set, without training.

    Captions are numbered by the vocabulary of the weights; a word that it lacks is read as its unknown word. The data
    set must hold features as the weights were trained with, of the same width.
    """
    from vsetune.study.fitting import require_readable
    from vsetune.training.device import choose_device
    from vsetune.training.trained import evaluate_stored, load_stored, other_features

    if coco_captions is None and (eccv_caption or cxc):
        raise UsageError(
            "VSE-X141", "--eccv-caption, --cxc: they name captions by ids of MS-COCO; also give --coco-captions FILE, "
            "Karpathy's dataset_coco.json",
        )
    files = {"captions": coco_captions, "eccv_caption": eccv_caption, "cxc": cxc}
    named = {key: str(path.absolute()) for key, path in files.items() if path is not None}
    wanted = parse_spec({"coco": named} if named else {}, EvaluationSpec, where="networks evaluate")
    with interruptible("nothing was written"), _named(weights) as (file, described):
        stored = load_stored(
            file, under_home(data), split=split, device=choose_device(device), described=described
        )
        require_readable(stored.trial, stored.dataset, where=weights)
        difference = other_features(stored)
        if difference is not None:
            complain("warning", Problem.of(
                "VSE-X046", "{difference}; recalls mean something only where these are the same features.",
                difference=difference,
            ))
        with scoring([stored.held.name]) as (report,):
            numbers = evaluate_stored(stored, wanted=wanted, report=report)
    found = stored.words
    if as_json:
        words = None if found is None else {"found": found[0], "of": found[1]}
        print_json({
            "weights": weights, "network": stored.held.name, "source": stored.held.source,
            "data": stored.dataset.manifest.name, "split": split, "words": words, **numbers,
        })
        return
    name = f"{stored.held.name} ({stored.held.source})"
    results.print(recall_table(f"recalls on {split}, per cent", [(name, numbers)], of="network"))
    for prefix, title in (("eccv", "ECCV Caption"), ("cxc", "Crisscrossed Captions")):
        ends = ("map_at_r", "r_precision", "_r1", "_r5", "_r10")
        judged = {key: value for key, value in numbers.items() if key.startswith(f"{prefix}_") and key.endswith(ends)}
        if judged:
            results.print(f"{title}, per cent: {', '.join(f'{key} {value:.1f}' for key, value in judged.items())}")
    if found is not None:
        inform(f"{found[0]} of {found[1]} words of {data} are known to the weights")


@contextmanager
def _named(weights: str) -> Iterator[tuple[Path, StoredNetwork | None]]:
    """The file, as long as it is needed, and the description of its network that it may lack."""
    from vsetune.networks.importing.stored import StoredWeights
    from vsetune.study.recorded import require_best_weights
    from vsetune.training.trained import described_by

    path = Path(weights)
    if path.suffix == ".safetensors" or path.exists():
        stored = StoredWeights.open(path)
        if stored.notes is not None:
            load_kept(stored.notes.plugins, path.absolute().parent.parent.parent, where=weights)
        yield path, None
        return
    store, (attempt,) = found_attempts(weights, finished=True)
    trial = attempt.trial()
    with tempfile.TemporaryDirectory() as into:
        file = require_best_weights(store, attempt, Path(into))
        yield file, described_by(file, trial)


_ENDINGS = (".tar", ".pth", ".pt", ".safetensors")  # in this order: .pth.tar


@app.command(
    "import",
    epilog="Example: vsetune networks import --from vsepp --words vocab/f30k_precomp_vocab.pkl runs/model_best.pth.tar",
)
def import_network(
    file: Annotated[Path, typer.Argument(help="weights file of the released code", show_default=False)],
    source: Annotated[
        str,
        typer.Option(
            "--from", metavar="NAME", show_default=False,
            help="vsepp, vsrn, sgraf, scan, gsmn, vse_infinity, pvse, pcme, tags, or uniter (to start tags from)",
        ),
    ],
    words: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", show_default=False,
            help="vocabulary released with the weights (.json, .pkl); without it they can be neither scored nor "
            "trained further. Those with BERT need none",
        ),
    ] = None,
    output: Annotated[
        Path | None, place_to_write(help="new folder for the result; default: FILE without its ending, -vsetune")
    ] = None,
    as_json: Json = False,
) -> None:
    """Bring trained weights of a released implementation: weights.safetensors, to score with
    `networks evaluate`, and network.yaml, an entry for a study that trains them further (`start_from`).

    Tensors and plain values are read, never code. A wrong or partial file is refused with the names that differ.
    """
    from vsetune.networks.importing.released_models import SOURCES, import_released

    require_known(source, SOURCES, "released implementation", at="--from")
    folder = output if output is not None else _folder_of(file)
    if folder.exists():
        raise UsageError(
            "VSE-X010", "{place}: exists already; choose another {option}, or remove it.", place=folder,
            option="--output",
        )
    imported = import_released(file, source, words=words)
    make_folder(folder)
    weights = folder.absolute() / "weights.safetensors"
    snippet = _snippet(file, imported, weights)
    write_whole(weights, imported.to_safetensors(), durable=False)
    write_whole(folder / "network.yaml", snippet.encode(), durable=False)
    found = _summary(imported)
    if as_json:
        print_json({"weights": str(weights), "network": imported.study_entry(weights), **found})
        return
    results.print(snippet, end="", soft_wrap=True)
    for reason, number in Counter(imported.unused.values()).items():
        inform(f"not needed: {number} tensors, {_names(imported, reason)}: {reason}")
    if imported.lacks_words:
        inform("no words to the word vectors: neither scored nor trained further until imported again with --words")
    inform(f"{weights}: {found['parameters']:,} numbers in {len(imported.weights)} tensors")


def _folder_of(file: Path) -> Path:
    name = file.name
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return file.with_name(f"{name}-vsetune")


def _summary(imported: Imported) -> dict[str, Any]:
    return {
        "source": imported.source, "regions": imported.regions, "width": imported.width,
        "vocabulary_size": imported.vocabulary_size, "words": not imported.lacks_words,
        "parameters": sum(int(tensor.numel()) for tensor in imported.weights.values()),
        "assumed": list(imported.assumed), "unused": dict(imported.unused),
    }


def _snippet(file: Path, imported: Imported, weights: Path) -> str:
    """An entry of `networks`, with what the reader must know above it."""
    regions = f"{imported.regions} regions of" if imported.regions > 1 else "vectors of"
    words = f"ids of the vocabulary it was trained with: {imported.vocabulary_size}"
    if imported.spec.reads.word_pieces is not None:
        words = f"word pieces of {imported.spec.reads.word_pieces}"
    lines = [
        f"# {imported.source}, weights of {file.name}",
        f"# reads {regions} {imported.width} numbers, and {words}",
    ]
    if imported.lacks_words:
        lines.append("# import again with --words VOCABULARY to start a training from these weights (start_from)")
    if imported.assumed:
        lines.append(f"# not in the file: {', '.join(imported.assumed)}; set them as the weights were trained")
    return "\n".join(lines) + "\n" + dump_yaml({"networks": [imported.study_entry(weights)]})


def _names(imported: Imported, reason: str) -> str:
    """The first of the names left over for a reason."""
    first, *others = [name for name, why in imported.unused.items() if why == reason]
    return f"{first}, ..." if others else first
