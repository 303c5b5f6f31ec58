"""An ingested data set, opened for reading."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vsetune.data import storage
from vsetune.data.manifest import MANIFEST_FILE, Manifest, SplitInfo, sha256_hex
from vsetune.data.vocabulary import Vocabulary
from vsetune.errors import DataError


@dataclass(frozen=True)
class Dataset:
    """A folder or s3:// prefix written by `vsetune data ingest`; plain data, so it travels to worker processes."""

    path: str
    manifest: Manifest
    vocabulary: Vocabulary

    @classmethod
    def open(cls, path: str) -> Dataset:
        """Read manifest and vocabulary. DataError when missing, of another format, or not what was written."""
        where = storage.join(path, MANIFEST_FILE)
        if not storage.is_remote(path) and not Path(path).is_dir():
            raise DataError(
                f"{path}: no such data folder; make one with `vsetune data ingest`, or a small one with "
                "`vsetune data make-scenes`."
            )
        if not storage.exists(where):
            raise DataError(
                f"{path}: no {MANIFEST_FILE} in it, so no finished data set; make one with `vsetune data ingest` or "
                "`vsetune data make-scenes`."
            )
        manifest = Manifest.from_bytes(storage.read_bytes(where), where=where)
        words_at = storage.join(path, manifest.vocabulary.file)
        content = storage.read_bytes(words_at)
        if sha256_hex(content) != manifest.vocabulary.sha256:
            raise DataError(f"{words_at}: not the file that was ingested (other hash); ingest the data set again.")
        return cls(path, manifest, Vocabulary.from_json(content))

    @property
    def fingerprint(self) -> str:
        """Hash of the manifest, hence of every shard; equal data sets give equal fingerprints."""
        return self.manifest.fingerprint()

    @property
    def regions(self) -> int:
        """Regions of an image; the most of any image when they differ."""
        return self.manifest.features.regions

    @property
    def width(self) -> int:
        """Size of one region's feature vector."""
        return self.manifest.features.width

    def split(self, name: str) -> SplitInfo:
        """One split. DataError when it is absent or empty, when its numbers contradict, or a local shard is gone."""
        split = self.manifest.splits.get(name)
        if split is None:
            there = ", ".join(sorted(self.manifest.splits)) or "none"
            raise DataError(f"{self.path}: no split {name!r}, it has: {there}; name one of them in the study file.")
        if not split.images or not split.captions:
            raise DataError(
                f"{self.path}: split {name!r} is empty, need at least one image with a caption; ingest the data with "
                "images in it, or name another split."
            )
        self._check_numbering(name, split)
        self._check_files(split)
        return split

    def shard_url(self, file: str) -> str:
        """Where a shard of the manifest stands."""
        return storage.join(self.path, file)

    def _check_numbering(self, name: str, split: SplitInfo) -> None:
        images = captions = 0
        for shard in split.shards:
            if (shard.first_image, shard.first_caption) != (images, captions):
                raise DataError(
                    f"{self.path}: shard {shard.file} starts at image {shard.first_image}, caption "
                    f"{shard.first_caption}; need image {images}, caption {captions}; ingest the data set again."
                )
            images, captions = images + shard.images, captions + shard.captions
        if (images, captions) != (split.images, split.captions):
            raise DataError(
                f"{self.path}: shards of split {name!r} hold {images} images and {captions} captions, the manifest "
                f"says {split.images} and {split.captions}; ingest the data set again."
            )

    def _check_files(self, split: SplitInfo) -> None:
        """A shard that is gone should be told before training, not after an hour; on S3 that is found on reading."""
        if storage.is_remote(self.path):
            return
        for shard in split.shards:
            if not storage.exists(self.shard_url(shard.file)):
                raise DataError(
                    f"{self.shard_url(shard.file)}: shard file missing; check with `vsetune data verify {self.path}`, "
                    "then copy it back or ingest the data set again."
                )
