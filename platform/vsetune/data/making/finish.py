"""The end of an ingest: vocabulary, manifest, upload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.data.making.ingest_journal import ShardRecord
from vsetune.data.making.raw import RawDataset
from vsetune.data.progress import ProgressSink
from vsetune.data.stored import storage
from vsetune.data.stored.manifest import (
    MANIFEST_FILE,
    VOCABULARY_FILE,
    FeatureInfo,
    Manifest,
    SplitInfo,
    VocabularyInfo,
    write_manifest,
)
from vsetune.data.stored.vocabulary import Vocabulary, tokenise
from vsetune.errors import DataError, one_line
from vsetune.storage import s3
from vsetune.storage.addresses import join
from vsetune.storage.hashes import sha256_hex
from vsetune.storage.whole_files import write_whole

_MANY_WORDS = 200


def finish(
    recipe: IngestRecipe, raw: RawDataset, features: FeatureInfo, records: Mapping[str, Sequence[ShardRecord]],
    *, output: Path,
) -> Manifest:
    """Write the vocabulary and, last of all, the manifest, whose notes the caller prints. DataError when a split ended
    up empty."""
    counts = _word_counts(raw, records["train"])
    notes = [
        *raw.notes, *_skipped_notes(records), *_long_caption_notes(raw),
        *_rare_word_notes(counts, recipe.vocabulary_min_count),
    ]
    manifest = Manifest(
        name=recipe.name,
        splits={name: _split_info(name, found) for name, found in records.items()},
        features=features,
        vocabulary=_write_vocabulary(recipe, counts, output=output),
        images_stored=recipe.store_images,
        recipe_fingerprint=recipe.content_fingerprint(),
        source_sha256=raw.digest(),
        notes=notes,
    )
    write_manifest(manifest, output)
    return manifest


def upload_dataset(manifest: Manifest, folder: Path, prefix: str, *, progress: ProgressSink) -> None:
    """Copy a finished data set to an s3:// prefix, its manifest last; nothing is copied if that manifest is already
    there.

    StorageError when the bucket refuses.
    """
    shards = [shard.file for split in manifest.splits.values() for shard in split.shards]
    progress.stage(f"{manifest.name} upload", len(shards))
    there = join(prefix, MANIFEST_FILE)
    if storage.exists(there) and storage.read_bytes(there) == manifest.to_bytes():
        progress.advance(len(shards))
        return
    for file in shards:
        s3.upload(folder / file, join(prefix, file))
        progress.advance(1)
    upload_lists(folder, prefix)


def upload_lists(folder: Path, prefix: str) -> None:
    """Copy vocabulary and, last of all, manifest to a prefix that has all the shards. StorageError."""
    s3.upload(folder / VOCABULARY_FILE, join(prefix, VOCABULARY_FILE))
    s3.upload(folder / MANIFEST_FILE, join(prefix, MANIFEST_FILE))


def _split_info(name: str, records: Sequence[ShardRecord]) -> SplitInfo:
    full = [record for record in records if record.shard is not None]
    shards = [record.shard for record in full if record.shard is not None]
    if not shards:
        raise DataError(f"split {name}: every image was skipped as unreadable; check the images of the source.")
    images, captions = sum(shard.images for shard in shards), sum(shard.captions for shard in shards)
    return SplitInfo(
        images=images, captions=captions, captions_mean=captions / images, shards=shards,
        captions_min=min(record.captions_min for record in full),
        captions_max=max(record.captions_max for record in full),
    )


def _word_counts(raw: RawDataset, records: Sequence[ShardRecord]) -> Counter[str]:
    """The number of occurrences of each word in the captions of the train split."""
    skipped = {id_ for record in records for id_ in record.skipped}
    return Counter(
        word
        for image in raw.splits["train"].images if image.id not in skipped
        for caption in image.captions
        for word in tokenise(caption)
    )


def _write_vocabulary(recipe: IngestRecipe, counts: Counter[str], *, output: Path) -> VocabularyInfo:
    vocabulary = Vocabulary.of_counts(counts, min_count=recipe.vocabulary_min_count)
    content = vocabulary.to_json().encode()
    write_whole(output / VOCABULARY_FILE, content, durable=True)
    return VocabularyInfo(
        sha256=sha256_hex(content), words=len(vocabulary), min_count=recipe.vocabulary_min_count
    )


def _rare_word_notes(counts: Counter[str], min_count: int) -> list[str]:
    """A note if most words are rare: a small data set, or a language without spaces, can leave a nearly empty
    vocabulary."""
    rare = sum(count for count in counts.values() if count < min_count)
    if 2 * rare <= counts.total():
        return []
    return [
        f"{rare:,} of {counts.total():,} words of the train captions stand there fewer than {min_count} times, so that "
        "networks that learn words take them for one; lower vocabulary_min_count, and where a language has no spaces "
        "put some between its words"
    ]


def _long_caption_notes(raw: RawDataset) -> list[str]:
    """Notes on long captions: a document in place of a caption, or many captions joined by mistake."""
    notes = []
    for name, split in raw.splits.items():
        words = ((len(caption.split()), image.id) for image in split.images for caption in image.captions)
        long = sorted(each for each in words if each[0] > _MANY_WORDS)
        if long:
            most, image_id = long[-1]
            notes.append(
                f"split {name}: {len(long):,} captions have more than {_MANY_WORDS} words, the longest, of "
                f"{one_line(image_id)}, has {most:,}: every batch with one is padded to it, which costs time and "
                "memory; shorten what is no caption"
            )
    return notes


def _skipped_notes(records: Mapping[str, Sequence[ShardRecord]]) -> list[str]:
    notes = []
    for split, found in records.items():
        ids = [id_ for record in found for id_ in record.skipped]
        if ids:
            notes.append(f"split {split}: skipped {len(ids)} unreadable images: {', '.join(ids[:20])}")
    return notes
