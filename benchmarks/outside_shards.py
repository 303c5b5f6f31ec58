"""How fast batches of photographs come from shards of other software, against `webdataset` alone, in one run.

    python benchmarks/outside_shards.py [SHARDS] [PAIRS] [ROUNDS]

SHARDS shards (300) of PAIRS made pairs each (40) are written as img2dataset writes them, uploaded to a seaweedfs server
started here (extra `chaos`), and indexed from there. Each round reads an epoch three ways, in turn: with vsetune from
the bucket through the node's cache, filled by a first epoch; with vsetune from local files; and with `webdataset` from
the same local files, which shuffles, decodes, crops and stacks as vsetune does, without a vocabulary, counts and
checks. Pairs per second of processor time are those of one core. Then a resumed epoch is compared with the
uninterrupted one, bit for bit, and a shard is damaged and one removed. Two cores: about 8 minutes; expect .95 or more
of the rate of `webdataset`.
"""

from __future__ import annotations

import io
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import islice
from pathlib import Path
from statistics import median

import numpy as np
import torch
import webdataset
from PIL import Image
from streaming import listed

from chaos.processes import Processes
from chaos.servers import BUCKET, s3_server
from vsetune.config.sources.index_recipe import IndexRecipe
from vsetune.config.sources.trial_inputs import NetworkReads, PixelInput
from vsetune.data.batches.batch import Batch
from vsetune.data.batches.pixels import training_crop
from vsetune.data.batches.reader import training_batches
from vsetune.data.making.index import index
from vsetune.data.progress import SilentProgress
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import UsageError
from vsetune.home import s3
from vsetune.home.node_cache import FOLDER_VARIABLE

BATCH, BUFFER, ROUNDS = 128, 2_000, 3
PIXELS = PixelInput(size=224)
WORDS = ["a", "the", "red", "old", "small", "dog", "man", "street", "tree", "water", "on", "in", "with", "two"]


def main(shards: int, pairs: int, rounds: int) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        os.environ["VSETUNE_HOME"], os.environ[FOLDER_VARIABLE] = str(place / "home"), str(place / "cache")
        files = write_shards(place / "web", shards, pairs)
        size = sum(path.stat().st_size for path in files)
        server, environment = s3_server(place, Processes(), megabytes=2 * size // 2**20 + 512)
        os.environ.update(environment)
        with server.running():
            for path in files:
                s3.upload(path, f"s3://{BUCKET}/web/{path.name}")
            remote = indexed(f"s3://{BUCKET}/web", shards, place / "remote")
            local = indexed(str(place / "web"), shards, place / "local")
            compare(local, remote, files[:-1], rounds)
            resume(remote)
            damage(remote, files)


def write_shards(folder: Path, shards: int, pairs: int) -> list[Path]:
    """train-00000.tar and so on, and val.tar, of JPEG files of about 256 x 320 with 20 kB."""
    folder.mkdir()
    rng, begin, files = np.random.default_rng(0), time.perf_counter(), []
    for number in range(shards + 1):
        files.append(folder / (f"train-{number:05d}.tar" if number < shards else "val.tar"))
        with webdataset.TarWriter(str(files[-1])) as writer:
            for image in range(pairs):
                caption = " ".join(rng.choice(WORDS, 11))
                writer.write({
                    "__key__": f"{number:05d}{image:04d}", "jpg": picture(rng), "txt": caption,
                    "json": json.dumps({"caption": caption, "width": 320, "height": 256, "status": "success"}),
                })
    size = sum(path.stat().st_size for path in files)
    print(f"{shards} shards of {pairs} pairs, {size / 2**20:,.0f} MiB, written in {time.perf_counter() - begin:.0f} s")
    return files


def picture(rng: np.random.Generator) -> bytes:
    """Colours that fade into each other, with some noise."""
    width, height = (320, 256) if rng.random() < 0.7 else (256, 320)
    coarse = Image.fromarray(rng.integers(0, 256, (9, 11, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), np.int16)
    noise = rng.integers(-9, 10, (height, width, 1), dtype=np.int16)
    buffer = io.BytesIO()
    Image.fromarray((smooth + noise).clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=88)
    return buffer.getvalue()


def indexed(folder: str, shards: int, output: Path) -> Dataset:
    recipe = IndexRecipe.model_validate({
        "name": "web", "output": str(output), "shards": f"{folder}/train-{{00000..{shards - 1:05d}}}.tar",
        "validation": f"{folder}/val.tar", "vocabulary_min_count": 1,
    })
    begin, working = time.perf_counter(), time.process_time()
    images = index(recipe, progress=SilentProgress()).splits["train"].images
    took, worked = time.perf_counter() - begin, time.process_time() - working
    print(f"index of {folder}: {images:,} images in {took:.0f} s, {images / worked:,.0f} a second of the processor")
    return Dataset.open(str(output))


def compare(local: Dataset, remote: Dataset, files: list[Path], rounds: int) -> None:
    """Prints the rates, and their ratios to that of `webdataset` in the same round."""
    begin = time.perf_counter()
    pairs = sum(batch.pairs for batch in epoch_of(remote, 0))
    print(f"first epoch from the bucket: {pairs / (time.perf_counter() - begin):,.0f} pairs/s by the clock")
    ways: dict[str, Callable[[int], Iterator[int]]] = {
        "webdataset": lambda epoch: with_webdataset(files, epoch),
        "vsetune, local": lambda epoch: (batch.pairs for batch in epoch_of(local, epoch)),
        "vsetune, s3": lambda epoch: (batch.pairs for batch in epoch_of(remote, epoch)),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        order = list(ways.items())
        for name, way in order[number % 3 :] + order[: number % 3]:
            working = time.process_time()
            pairs = sum(way(number))
            rates[name].append(pairs / (time.process_time() - working))
    for name, found in rates.items():
        ratios = [rate / other for rate, other in zip(found, rates["webdataset"], strict=True)]
        print(f"{name:15}{median(found):8,.0f} pairs/s per core, ratios {listed(ratios)}", flush=True)


def epoch_of(dataset: Dataset, epoch: int, skip: int = 0) -> Iterator[Batch]:
    return training_batches(
        dataset, "train", batch_size=BATCH, batch_unit="pairs", seed=0, epoch=epoch, shuffle_pairs=BUFFER,
        skip_batches=skip, reads=NetworkReads(pixels=PIXELS),
    )


def with_webdataset(files: list[Path], epoch: int) -> Iterator[int]:
    """Pairs of each batch."""
    rng = random.Random(epoch)

    def pixels(image: Image.Image) -> np.ndarray:
        box = training_crop(PIXELS, image.size, rng)
        square = np.asarray(image.resize((224, 224), Image.Resampling.BILINEAR, box=box)).transpose(2, 0, 1)
        return square[:, :, ::-1] if rng.random() < PIXELS.flip else square

    pipeline = webdataset.DataPipeline(
        webdataset.SimpleShardList([str(path) for path in files], seed=epoch),
        webdataset.tarfile_to_samples(),
        webdataset.shuffle(BUFFER, rng=rng),
        webdataset.decode("pil"),
        webdataset.to_tuple("jpg", "txt"),
        webdataset.map_tuple(pixels, lambda text: text),
        webdataset.batched(BATCH, collation_fn=lambda rows: (
            torch.from_numpy(np.stack([image for image, _ in rows])), [text for _, text in rows]
        )),
    )
    for images, _ in pipeline:
        yield len(images)


def resume(dataset: Dataset) -> None:
    """An epoch from its middle on, against the uninterrupted one."""
    steps = -(-dataset.split("train").images // BATCH)
    rest = list(islice(epoch_of(dataset, 5), steps // 2, None))
    begin = time.perf_counter()
    resumed = list(epoch_of(dataset, 5, skip=steps // 2))
    same = all(
        torch.equal(getattr(one, field.name), getattr(other, field.name))
        for one, other in zip(rest, resumed, strict=True) for field in fields(Batch)
        if getattr(one, field.name) is not None
    )
    print(f"resumed at batch {steps // 2} of {steps}: {len(resumed)} batches, {'equal' if same else 'DIFFERENT'}, in "
          f"{time.perf_counter() - begin:.0f} s")


def damage(dataset: Dataset, files: list[Path]) -> None:
    """A shard that is cut and one that is gone: the error of an epoch, and the epoch after the repair."""
    os.environ["VSETUNE_NODE_CACHE_GB"] = "0"
    cut, gone = (f"s3://{BUCKET}/web/{path.name}" for path in files[:2])
    for address, spoil in ((cut, lambda: s3.put_bytes(cut, files[0].read_bytes()[:-5000])),
                           (gone, lambda: s3.delete([gone]))):
        spoil()
        pairs = 0
        try:
            for batch in epoch_of(dataset, 0):
                pairs += batch.pairs
        except UsageError as error:
            print(f"after {pairs:,} pairs: {error}")
        s3.upload(files[0 if address == cut else 1], address)
    print(f"repaired: {sum(batch.pairs for batch in epoch_of(dataset, 0)):,} pairs")


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    main(int(given.get(1, 300)), int(given.get(2, 40)), int(given.get(3, ROUNDS)))
