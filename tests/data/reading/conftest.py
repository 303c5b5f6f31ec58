"""Tiny ingested data sets, written with tarfile alone, so that reading is tested apart from ingest."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import resource
import shutil
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chained_words import Chain, chain
from home_of_a_module import home_of_a_module
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy
from PIL import Image

from vsetune.config.sources.trial_inputs import EncoderSpec, NetworkReads, PixelInput
from vsetune.data.batches.reader import evaluation_batches
from vsetune.data.captions.parses import caption_phrases, parse_dataset, read_parses
from vsetune.data.looking.verify import verify
from vsetune.data.making.raw import png_bytes
from vsetune.data.progress import SilentProgress
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.manifest import FeatureInfo, Manifest, ShardInfo, SplitInfo, VocabularyInfo, write_manifest
from vsetune.data.stored.shards import iter_words
from vsetune.data.stored.vocabulary import Vocabulary, tokenise
from vsetune.errors import DataError

__all__ = ["chain", "home_of_a_module"]
WIDTH = 3


@dataclass
class TinyData:
    """What to write. captions: of each image of the split. edit: called with (image index, members) before writing.

    photograph: the PNG file of each image by its index; without it no photographs are stored.
    """

    folder: Path
    captions: list[list[str]]
    split: str = "train"
    images_per_shard: int = 5
    regions: Sequence[int] = (2,)
    boxes: bool = False
    photograph: Callable[[int], bytes] | None = None
    edit: Callable[[int, dict[str, bytes]], Any] = lambda index, members: None
    shards: list[ShardInfo] = field(default_factory=list)

    def write(self) -> Dataset:
        self.folder.mkdir(parents=True, exist_ok=True)
        first_caption = 0
        for first in range(0, len(self.captions), self.images_per_shard):
            first_caption += self._write_shard(first, first_caption)
        counts = [len(texts) for texts in self.captions] or [0]
        split = SplitInfo(
            images=len(self.captions), captions=sum(counts), captions_min=min(counts), captions_max=max(counts),
            captions_mean=sum(counts) / len(counts), shards=self.shards,
        )
        vocabulary = Vocabulary.build((tokenise(text) for texts in self.captions for text in texts), min_count=1)
        content = vocabulary.to_json().encode()
        (self.folder / "vocabulary.json").write_bytes(content)
        write_manifest(
            Manifest(
                name="tiny", splits={self.split: split}, recipe_fingerprint="0",
                images_stored=self.photograph is not None,
                features=FeatureInfo(
                    extractor="test", regions=max(self.regions), regions_min=min(self.regions), width=WIDTH,
                    boxes=self.boxes,
                ),
                vocabulary=VocabularyInfo(
                    sha256=hashlib.sha256(content).hexdigest(), words=len(vocabulary), min_count=1
                ),
            ),
            self.folder,
        )
        return Dataset.open(str(self.folder))

    def _write_shard(self, first: int, first_caption: int) -> int:
        path = self.folder / f"{self.split}-{len(self.shards):06d}.tar"
        written = 0
        block = self.captions[first : first + self.images_per_shard]
        with tarfile.open(path, "w") as tar:
            for index, texts in enumerate(block, start=first):
                members = {
                    "json": json.dumps({
                        "image": f"{index}.jpg", "captions": texts, "tokens": [tokenise(text) for text in texts],
                        "first_caption": first_caption + written, "index": index,
                    }).encode(),
                    "features.npy": as_npy(np.full((self.regions[index % len(self.regions)], WIDTH), index)),
                    "jpg": b"not looked at",
                }
                if self.photograph is not None:
                    members |= {"png": self.photograph(index)}
                    del members["jpg"]
                self.edit(index, members)
                for suffix, content in members.items():
                    info = tarfile.TarInfo(f"{index:08d}.{suffix}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
                written += len(texts)
        self.shards.append(ShardInfo(
            file=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest(), bytes=path.stat().st_size,
            images=len(block), captions=written, first_image=first, first_caption=first_caption,
        ))
        return written


def as_npy(array: np.ndarray, *, dtype: str = "float16", allow_pickle: bool = False) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array.astype(dtype), allow_pickle=allow_pickle)
    return stream.getvalue()


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., TinyData]:
    """tiny(captions per image or a number of images, **options): data not yet written."""

    def make(captions: int | list[list[str]] = 23, **options: Any) -> TinyData:
        if isinstance(captions, int):
            captions = [
                [f"image {image} says " + "very " * (image % 4) + f"{text}" for text in range(1 + image % 3)]
                for image in range(captions)
            ]
        return TinyData(tmp_path / "data", captions, **options)

    return make


@pytest.fixture
def npy() -> Callable[..., bytes]:
    return as_npy


ENCODER_WORDS = ["a", "dog", "runs", "cat", "the", "man", "rides", "bike", "red", "over", "grass"]


@pytest.fixture(scope="session")
def save_bert() -> Callable[..., str]:
    """save_bert(folder): a BERT of two layers, 32 wide, random weights, its vocabulary a list of words."""
    transformers = pytest.importorskip("transformers")

    def save(folder: Path, *, seed: int = 0, words: Sequence[str] = ENCODER_WORDS) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
        (folder / "vocab.txt").write_text("\n".join(vocabulary))
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
        torch.manual_seed(seed)
        config = transformers.BertConfig(
            vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=48, max_position_embeddings=16,
        )
        transformers.BertModel(config).save_pretrained(folder)
        return str(folder)

    return save


@pytest.fixture(scope="session")
def saved(save_bert: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(save_bert(tmp_path_factory.mktemp("models") / "bert"))


@pytest.fixture
def bert(saved: Path, tmp_path: Path) -> str:
    """A copy that a test may change."""
    return str(shutil.copytree(saved, tmp_path / "bert"))


@pytest.fixture
def spec(bert: str) -> Callable[..., EncoderSpec]:
    return lambda **settings: EncoderSpec(**{"model": bert} | settings)


@pytest.fixture
def sound_data(tiny: Callable[..., TinyData], chain: Chain) -> Path:
    """Four images in two shards, with everything a data set may have: boxes, photographs, parses, phrases."""
    def with_boxes(index: int, members: dict[str, bytes]) -> None:
        members["boxes.npy"] = as_npy(np.full((2, 4), 0.5), dtype="float32")

    data = tiny(4, images_per_shard=2, boxes=True, photograph=_small_photograph, edit=with_boxes)
    data.write()
    parse_dataset(str(data.folder), "chain", phrases=True, progress=SilentProgress())
    return data.folder


def _small_photograph(index: int) -> bytes:
    return png_bytes(Image.new("RGB", (6, 5), (index, 40, 200)))


@pytest.fixture
def verdicts() -> Callable[[Path], tuple[Any, str | None]]:
    """verdicts(folder): what `verify` lists (or its error), and the error of reading everything for training."""
    return lambda folder: (_verified(str(folder)), _read(str(folder)))


def _verified(path: str) -> list[str]:
    try:
        return verify(path)
    except DataError as error:
        return [str(error)]


def _read(path: str) -> str | None:
    try:
        dataset = Dataset.open(path)
        has_parses = read_parses(path) is not None
        for split in dataset.manifest.splits:
            reads = NetworkReads(boxes=True, dependencies=has_parses)
            list(evaluation_batches(dataset, split, batch_size=3, reads=reads))
            phrases = caption_phrases(dataset, split)
            for caption, words in enumerate(iter_words(dataset, split)):
                phrases.of(caption, words=len(words))
            if dataset.manifest.images_stored:
                photographs = replace(reads, pixels=PixelInput(size=32))
                list(evaluation_batches(dataset, split, batch_size=3, reads=photographs))
    except DataError as error:
        return str(error)
    return None


@pytest.fixture
def fuzz(verdicts: Callable[[Path], tuple[Any, str | None]], tmp_path: Path) -> Callable[..., None]:
    """fuzz(folder, changes, examples=N): each drawn change, made to a copy, is told in one line or not at all.

    Nothing but DataError leaves `verify` and the reader; what `verify` passes is read; memory stays bounded.
    """

    def run(folder: Path, changes: SearchStrategy[Callable[[Path], None]], *, examples: int) -> None:
        copies = tmp_path / "copies"
        refused = 0

        @settings(
            max_examples=examples, deadline=timedelta(seconds=20), derandomize=True, database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(changes)
        def one(change: Callable[[Path], None]) -> None:
            nonlocal refused
            copy = Path(shutil.copytree(folder, copies, symlinks=True, ignore=shutil.ignore_patterns("fifo")))
            try:
                os.mkfifo(copy / "fifo")
                change(copy)
                told, read = verdicts(copy)
                assert not any("\n" in line for line in (*told, read or ""))
                assert told or read is None, f"verify passed what reading refuses: {read}"
                refused += bool(told)
            finally:
                shutil.rmtree(copies)

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        one()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 600 << 10, f"took {grown >> 10} MiB more than before"
        assert 0 < refused < examples
        logging.getLogger(__name__).info("%d of %d inputs refused", refused, examples)

    return run
