"""An ingested data set, opened for reading."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from vsetune.config.sources.trial_inputs import STREAMED, DataSpec, Reading
from vsetune.data.stored import storage
from vsetune.data.stored.manifest import MANIFEST_FILE, Manifest, ShardInfo, SplitInfo
from vsetune.data.stored.plain_files import Flaw
from vsetune.data.stored.storage import MISFIT, OTHER_HASH
from vsetune.data.stored.vocabulary import Vocabulary
from vsetune.errors import DataError, Problem, one_line
from vsetune.home import s3
from vsetune.home.addresses import is_remote, join
from vsetune.home.hashes import sha256_hex
from vsetune.home.node_cache import WrongContent, node_cache
from vsetune.home.paths import under_home


@dataclass(frozen=True)
class Dataset:
    """A folder or s3:// prefix written by `vsetune data ingest`; plain data that can be sent to worker processes.

    `open`, `check_files`, `require_unchanged` and `open_shard` access the storage; the rest comes from the manifest.
    """

    path: str
    manifest: Manifest
    vocabulary: Vocabulary
    reading: Reading = STREAMED

    @classmethod
    def open(cls, path: str, *, reading: Reading = STREAMED) -> Dataset:
        """Read manifest and vocabulary. DataError when missing, of another format, or changed.

        reading: source of its batches, which does not change them.
        """
        manifest = load_manifest(path)
        words_at = join(path, manifest.vocabulary.file)
        try:
            content = storage.read_hashed(path, manifest.vocabulary.file, sha256=manifest.vocabulary.sha256)
        except s3.NothingThere as error:
            raise DataError(
                "VSE-D025", "{file}: {kind} file missing; {check}copy it back or ingest the data set again.",
                file=words_at, kind="vocabulary", check="",
            ) from error
        if sha256_hex(content) != manifest.vocabulary.sha256:
            raise DataError(OTHER_HASH(
                file=words_at, listed="manifest.json", fix="copy it back or ingest the data set again.",
            ))
        vocabulary = Vocabulary.from_json(content, where=words_at)
        if len(vocabulary) != manifest.vocabulary.words:
            raise DataError(MISFIT(
                where=words_at, found=f"{len(vocabulary)} words", need=f"{manifest.vocabulary.words} by the manifest",
                fix="ingest the data set again.",
            ))
        return cls(path, manifest, vocabulary, reading)

    @property
    def fingerprint(self) -> str:
        """Hash of the manifest, hence of every shard; equal data sets give equal fingerprints."""
        return self.manifest.fingerprint()

    @property
    def regions(self) -> int:
        """Regions of an image; the largest number of any image when they differ."""
        return self.manifest.features.regions

    @property
    def width(self) -> int:
        """Size of one region's feature vector."""
        return self.manifest.features.width

    def split(self, name: str) -> SplitInfo:
        """One split. DataError when it is absent or empty, or its numbers contradict each other."""
        split = self.manifest.splits.get(name)
        if split is None:
            there = ", ".join(sorted(self.manifest.splits)) or "none"
            raise DataError(
                "VSE-D021", "{folder}: no split {split!r}, it has: {splits}; name one of them.", folder=self.path,
                split=name, splits=there,
            )
        for problem in self.count_problems(name, split):
            raise DataError(problem)
        return split

    def check_files(self, splits: Iterable[str]) -> None:
        """Check once every shard of these splits, before hours of work: DataError for the first that is missing or of
        another size.

        DataError also for a split that `split` refuses. Shards of an s3:// prefix are not checked, since that takes a
        request per shard: a missing one is found when it is read.
        """
        for shard in [shard for name in splits for shard in self.split(name).shards]:
            if not is_remote(self.shard_url(shard)):
                self._check_file(shard)

    def require_unchanged(self, splits: Iterable[str]) -> None:
        """DataError for the first shard of these splits that differs from what was ingested. Local data only.

        Shards of an s3:// prefix are compared with their hashes when a node downloads them. Of shards that other
        software wrote only the size is compared: they are too large to be read before every study.
        """
        names = list(splits)
        self.check_files(names)
        for shard in [] if is_remote(self.path) else [shard for name in names for shard in self.split(name).shards]:
            if shard.outside is None and storage.sha256_of(self.shard_url(shard)) != shard.sha256:
                raise damaged_shard(self.path, shard, wrong_hash())

    def count_problems(self, name: str, split: SplitInfo) -> Iterator[Problem]:
        """Problems of a split that the manifest alone shows."""
        if not split.images or not split.captions:
            yield Problem.of(
                "VSE-D023", "{folder}: split {split!r} is empty, need at least one image with a caption; ingest the "
                "data with images in it, or name another split.", folder=self.path, split=name,
            )
        images = captions = 0
        for shard in split.shards:
            if (shard.first_image, shard.first_caption) != (images, captions):
                yield MISFIT(
                    where=f"{self.path}: shard {shard.file}",
                    found=f"a start at image {shard.first_image}, caption {shard.first_caption}",
                    need=f"image {images}, caption {captions}", fix="ingest the data set again.",
                )
                return
            images, captions = images + shard.images, captions + shard.captions
        if (images, captions) != (split.images, split.captions):
            yield MISFIT(
                where=f"{self.path}: shards of split {name!r}", found=f"{images} images and {captions} captions",
                need=f"{split.images} and {split.captions}", fix="ingest the data set again.",
            )

    def shard_url(self, shard: ShardInfo) -> str:
        """Address of a shard of the manifest."""
        return join(self.path, shard.file) if shard.outside is None else shard.outside.address

    def open_shard(self, shard: ShardInfo) -> tuple[BinaryIO, int]:
        """(stream, length in bytes). DataError when it is missing or not a file of this data set.

        A shard of an s3:// prefix is downloaded once for all processes of this node, its size and hash compared.
        """
        try:
            return storage.open_hashed(*self._place(shard), sha256=shard.sha256, size=shard.bytes)
        except WrongContent as error:
            raise damaged_shard(self.path, shard, Flaw(error.reason)) from error
        except s3.NothingThere as error:
            raise self.missing(shard) from error

    def open_original(self, shard: ShardInfo) -> tuple[BinaryIO, int]:
        """(stream, length in bytes) of the file or object itself, never of this node's copy. NothingThere, DataError.
        """
        return storage.open_inside(*self._place(shard))

    def _place(self, shard: ShardInfo) -> tuple[str, str]:
        """(folder or prefix, name in it)."""
        if shard.outside is None:
            return self.path, shard.file
        address = shard.outside.address
        folder, _, name = (address if is_remote(address) else os.path.realpath(address)).rpartition("/")
        return folder, name

    def missing(self, shard: ShardInfo) -> DataError:
        """The error for a missing shard, in one line."""
        if shard.outside is not None:
            return DataError(
                "VSE-D092", "{shard}: shard missing; put it back, or delete {folder}/manifest.json and repeat `vsetune "
                "data index`.", shard=shard.outside.address, folder=self.path,
            )
        return DataError(
            "VSE-D025", "{file}: {kind} file missing; {check}copy it back or ingest the data set again.",
            file=self.shard_url(shard), kind="shard", check=check_first(self.path),
        )

    def require_sound_copy(self, shard: ShardInfo) -> None:
        """StorageError if only this node's copy of a damaged shard is damaged; the copy is then fetched again."""
        if is_remote(self.shard_url(shard)):
            node_cache().require_sound(self.shard_url(shard), sha256=shard.sha256)

    @contextmanager
    def fetched_ahead(self, shards: Sequence[ShardInfo]) -> Iterator[Iterable[ShardInfo]]:
        """These shards in this order, to be read one after the other; for an s3:// prefix a thread downloads the next
        one meanwhile. A failed download is reported when that shard is read."""
        if not any(is_remote(self.shard_url(shard)) for shard in shards):
            yield shards
            return
        stop, pool = threading.Event(), ThreadPoolExecutor(1, thread_name_prefix="vsetune-fetch")
        fetches = (pool.submit(self._fetch, shard, stop) for shard in shards)
        coming = deque(islice(fetches, 1))

        def in_turn() -> Iterator[ShardInfo]:
            for shard in shards:
                coming.popleft().result()
                coming.extend(islice(fetches, 1))
                yield shard

        try:
            yield in_turn()
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)

    def _fetch(self, shard: ShardInfo, stop: threading.Event) -> None:
        if is_remote(self.shard_url(shard)):
            node_cache().fetch(self.shard_url(shard), sha256=shard.sha256, size=shard.bytes, stop=stop)

    def _check_file(self, shard: ShardInfo) -> None:
        try:
            found = storage.size_inside(*self._place(shard))
        except DataError as error:
            advice = f"The whole data set is checked by `vsetune data verify {self.path}`."
            raise DataError(error.problem.worded(f"{error} {advice}")) from error
        if found is None:
            raise self.missing(shard)
        if found != shard.bytes:
            raise damaged_shard(self.path, shard, wrong_size(found, shard))


def load_manifest(path: str) -> Manifest:
    """The manifest of a folder or s3:// prefix. DataError when there is none or it is of another format."""
    where = join(path, MANIFEST_FILE)
    if not is_remote(path) and not Path(path).is_dir():
        raise DataError(
            "VSE-D012", "{folder}: no such data folder; make one with `vsetune data ingest`, or a small one with "
            "`vsetune data make-scenes`.", folder=one_line(path),
        )
    content = storage.find_inside(path, MANIFEST_FILE)
    if content is None:
        raise DataError(
            "VSE-D013", "{folder}: no manifest.json in it, so no finished data set; make one with `vsetune data "
            "ingest` or `vsetune data make-scenes`.", folder=path,
        )
    return Manifest.from_bytes(content, where=where)


def wrong_size(found: int, shard: ShardInfo) -> Flaw:
    """The flaw of a shard whose size differs from the manifest."""
    return Flaw(f"{found:,} bytes, the manifest says {shard.bytes:,}; cut short or changed")


def wrong_hash() -> Flaw:
    """The flaw of a shard of the right size with other content."""
    return Flaw("its SHA-256 is not the one of the manifest; changed")


def damaged_shard(folder: str, shard: ShardInfo, reason: Flaw) -> DataError:
    """The error for a damaged shard of this data folder, in one line."""
    if shard.outside is not None:
        return DataError(
            "VSE-D093", "{shard}: damaged shard ({reason}); put it back as it was, or delete {folder}/manifest.json "
            "and repeat `vsetune data index`.", shard=shard.outside.address, reason=reason, folder=folder,
        )
    return DataError(
        "VSE-D026", "{shard}: damaged shard ({reason}); {check}copy it back or ingest the data set again.",
        shard=join(folder, shard.file), reason=reason, check=check_first(folder),
    )


def check_first(folder: str) -> str:
    """First part of the advice on a damaged data folder."""
    return f"check with `vsetune data verify {folder}`, then "


def without_check(problem: Problem, folder: str) -> Problem:
    """The problem without the advice to check the data folder, which was checked."""
    return problem.worded(problem.replace(check_first(folder), ""))


def evaluated_split(data: DataSpec, dataset: Dataset) -> str:
    """The split on which the best checkpoint is scored: test where the data set has it, else validation."""
    has_test = data.test_split is not None and data.test_split in dataset.manifest.splits
    return data.test_split if has_test and data.test_split is not None else data.validation_split


def further_tests(data: DataSpec, dataset: Dataset) -> dict[str, tuple[Dataset, str]]:
    """The data set and the split of each of `data.tests`. dataset: of the study; its vocabulary numbers the captions of
    all. DataError for one that cannot be opened."""
    return {
        name: (
            dataset if test.path is None
            else replace(Dataset.open(under_home(test.path)), vocabulary=dataset.vocabulary), test.split,
        )
        for name, test in data.tests.items()
    }
