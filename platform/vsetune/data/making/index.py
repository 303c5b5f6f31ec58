"""Indexing: makes a data set of shards that other software wrote. Writes manifest and vocabulary, and leaves the shards
where and as they are.

Every shard is read once. The result is stored under `.index` of the output at once. So a killed run continues at the
first unread shard, and a later run with more shards or other settings reads only what is new. The evaluation splits are
read first, because train images are compared with theirs.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path

from braceexpand import braceexpand
from pydantic import ValidationError

from vsetune.config.sources.index_recipe import IndexRecipe, ShardSource
from vsetune.data.making.data_place import locked, output_place, refuse_foreign_files, vocabulary_of, write_at
from vsetune.data.making.shard_index import MISSING, IndexedShard, IndexTask, image_name, index_shard, version_of
from vsetune.data.making.shard_tasks import TaskRunner, one_by_one
from vsetune.data.progress import ProgressSink
from vsetune.data.stored import storage
from vsetune.data.stored.dataset import load_manifest
from vsetune.data.stored.manifest import (
    MANIFEST_FILE,
    VOCABULARY_FILE,
    FeatureInfo,
    Manifest,
    OutsideShard,
    ShardInfo,
    SplitInfo,
)
from vsetune.data.stored.outside_shards import texts_content
from vsetune.errors import ConfigError, DataError, Message, Problem, StudyConflict, one_line
from vsetune.home import s3
from vsetune.home.addresses import is_remote, join
from vsetune.home.hashes import fingerprint_of, sha256_hex
from vsetune.home.whole_files import make_folder

_SHARD_PATTERN = Message(
    "VSE-D098", "{key}: {pattern} names no shards ({reason}); need a file, braces like {{000..299}}, or *.tar."
)

RECORDS, TEXTS, LEFT_OUT_FILE = ".index", "captions", "left_out.csv"
_MOST_SHARDS = 1_000_000
_WILDCARD = re.compile(r"[*?[]")
_MOST_REASONS = 6
_RECORD_BYTES = 1 << 30


def indexed(recipe: IndexRecipe, place: str) -> Manifest | None:
    """The manifest of this recipe, if it is finished. StudyConflict if there is one of another recipe."""
    if not storage.exists(join(place, MANIFEST_FILE)):
        return None
    manifest = load_manifest(place)
    if manifest.recipe_fingerprint != recipe.content_fingerprint():
        raise StudyConflict(
            "VSE-D095", "output: {place}: holds data set {data_set} of another recipe; choose another output, or "
            "delete its manifest.json to index again (shards that were read are not read again).", place=place,
            data_set=manifest.name,
        )
    return manifest


def index(recipe: IndexRecipe, *, progress: ProgressSink, run_tasks: TaskRunner | None = None) -> Manifest:
    """Index the shards of a recipe, continue a killed run, or find the index finished. Returns the manifest.

    run_tasks: runs the tasks that read the shards; None: one after the other in this process. ConfigError: the recipe,
    or missing or damaged shards, a line each, unless the recipe skips them. The next run does not read the sound shards
    again. StorageError: disk or bucket. StudyConflict: the output has another data set.
    """
    place = output_place(recipe)
    manifest = indexed(recipe, place)
    if manifest is not None:
        return manifest
    tasks, notes = _tasks(recipe)
    with _locked(place):
        run = one_by_one if run_tasks is None else run_tasks
        first = [each for each in tasks if each.task.split != "train"]
        evaluation = _read(recipe, first, place, run, progress, Counter())
        known = _write_known_pictures(evaluation, place)
        training = [
            replace(each, task=replace(each.task, known=known)) for each in tasks if each.task.split == "train"
        ]
        words: Counter[str] = Counter()
        shards = evaluation + _read(recipe, training, place, run, progress, words)
        problems = list(_damage(shards)) if recipe.on_damaged == "refuse" else []
        if problems:
            raise ConfigError(problems)
        return _finish(recipe, shards, words, place, notes)


@dataclass(frozen=True)
class _Listed:
    """A shard of the recipe. found: what was read in it, without texts and words; None before. texts_sha256: hash of
    the file with its captions.
    """

    task: IndexTask
    source: ShardSource
    found: IndexedShard | None = None
    texts_sha256: str = ""

    @property
    def shard(self) -> IndexedShard:
        assert self.found is not None
        return self.found


def _tasks(recipe: IndexRecipe) -> tuple[list[_Listed], list[str]]:
    """All shards, each with its version, and notes. ConfigError for an impossible pattern or a shard that is listed
    twice; a wildcard means the shards that no other key lists."""
    listed: list[_Listed] = []
    notes: list[str] = []
    numbers: Counter[str] = Counter()
    seen: dict[str, str] = {}
    expanded = [(split, key, source, list(_addresses(source.shards, key))) for split, key, source in recipe.sources()]
    named = {address: key for _, key, _, found in expanded for address, is_matched in found if not is_matched}
    for split, key, source, found in expanded:
        elsewhere = [address for address, is_matched in found if is_matched and named.get(address, key) != key]
        others = " and ".join(sorted({named[each] for each in elsewhere}))
        if elsewhere and len(elsewhere) == len(found):
            reason = f"all that match are named under {others}"
            raise ConfigError(_SHARD_PATTERN(key=key, pattern=source.shards, reason=reason))
        if elsewhere:
            notes.append(f"{split}: {source.shards} matches {len(elsewhere):,} of {others}, not used for {split}")
        for address, _ in found:
            if address in elsewhere:
                continue
            if address in seen:
                raise ConfigError(
                    "VSE-D099", "{key}: {shard} is listed under {other} too; name each shard once.", key=key,
                    shard=address, other=seen[address],
                )
            seen[address] = key
            task = IndexTask(
                split, numbers[split], address, version_of(address), recipe.captions, recipe.key_ends_at,
                recipe.perceptual,
            )
            listed.append(_Listed(task, source))
            numbers[split] += 1
    return listed, notes


def _addresses(pattern: str, key: str) -> Iterator[tuple[str, bool]]:
    """(shard, whether a wildcard matched it) of all that a pattern names; absolute paths or s3:// addresses."""
    try:
        named = list(itertools.islice(braceexpand(pattern, escape=False), _MOST_SHARDS + 1))
    except ValueError as error:
        raise ConfigError(_SHARD_PATTERN(key=key, pattern=pattern, reason=one_line(error))) from error
    if len(named) > _MOST_SHARDS:
        raise ConfigError(_SHARD_PATTERN(key=key, pattern=pattern, reason=f"more than {_MOST_SHARDS:,} shards"))
    for each in named:
        address = each if is_remote(each) else os.path.abspath(each)
        if not _WILDCARD.search(address) or (not is_remote(address) and storage.exists(address)):
            if not is_remote(address) and os.path.isdir(address):
                reason = f"it is a folder; name the shards in it, such as {one_line(each.rstrip('/'))}/*.tar"
                raise ConfigError(_SHARD_PATTERN(key=key, pattern=pattern, reason=reason))
            yield address, False
            continue
        found = _matches(address)
        if not found:
            raise ConfigError(_SHARD_PATTERN(key=key, pattern=pattern, reason="nothing there matches"))
        yield from ((match, True) for match in found)


def _matches(pattern: str) -> list[str]:
    """The files or objects that a pattern with wildcards matches, sorted. A wildcard matches no slash."""
    if not is_remote(pattern):
        return sorted(path for path in glob(pattern) if not os.path.isdir(path))
    start = pattern[: _WILDCARD.search(pattern).start()]  # type: ignore[union-attr]
    slashes = pattern.count("/")
    return sorted(each for each in s3.listing(start) if each.count("/") == slashes and fnmatchcase(each, pattern))


def _read(
    recipe: IndexRecipe, listed: Sequence[_Listed], place: str, run: TaskRunner, progress: ProgressSink,
    words: Counter[str],
) -> list[_Listed]:
    """The shards with what was found in them, in the order of `listed`. A shard with a stored record is not read again.
    words: the words of all images that are not left out are added to it."""
    progress.stage(f"{recipe.name} {'/'.join(dict.fromkeys(each.task.split for each in listed))} shards", len(listed))
    found: dict[str, _Listed] = {}
    to_read: dict[str, _Listed] = {}
    for each in listed:
        record = _stored(place, each.task) if each.task.version is not None else IndexedShard(damage=MISSING)
        if record is None:
            to_read[each.task.name] = each
            continue
        found[each.task.name] = _counted(recipe, each, record, place, words)
        progress.advance(1)
    for task, record in run(index_shard, [each.task for each in to_read.values()]):
        if record.damage != MISSING:
            write_at(place, f"{RECORDS}/{task.record}", record.model_dump_json().encode())
        found[task.name] = _counted(recipe, to_read[task.name], record, place, words)
        progress.advance(1)
    return [found[each.task.name] for each in listed]


def _counted(recipe: IndexRecipe, each: _Listed, record: IndexedShard, place: str, words: Counter[str]) -> _Listed:
    """The shard with its record. Adds its words to `words`. Writes its texts to a file, because the texts of a thousand
    shards would fill the memory."""
    words.update(record.words)
    left_out = record.duplicates if recipe.duplicates == "leave_out" else {}
    for duplicate in left_out.values():
        words.subtract(duplicate.words)
    content = texts_content((key, texts) for key, texts in record.texts.items() if key not in left_out)
    sha256 = sha256_hex(content)
    write_at(place, f"{TEXTS}/{sha256}.jsonl", content)
    return replace(each, found=record.model_copy(update={"texts": {}, "words": {}}), texts_sha256=sha256)


def _stored(place: str, task: IndexTask) -> IndexedShard | None:
    try:
        content = storage.read_inside(place, f"{RECORDS}/{task.record}", most=_RECORD_BYTES)
        return IndexedShard.model_validate_json(content)
    except (DataError, ValidationError):  # none, or a damaged one: the shard is read again
        return None


def _write_known_pictures(evaluation: Sequence[_Listed], place: str) -> tuple[str, str]:
    """Write the hashes of all evaluation pictures to a file, for the processes that read train shards. Returns its
    folder or prefix, and its name in it."""
    by_bytes: dict[str, str] = {}
    by_look: dict[str, str] = {}
    for each in evaluation:
        for key, (digest, look) in each.shard.pictures.items():
            name = f"{each.task.split} {image_name(each.task.address, key)}"
            by_bytes.setdefault(digest, name)
            if look:
                by_look.setdefault(look, name)
    plain = {"by_bytes": by_bytes, "by_look": by_look}
    name = f"{RECORDS}/known-{fingerprint_of(plain)}"
    write_at(place, name, json.dumps(plain).encode())
    return place, name


def _damage(shards: Sequence[_Listed]) -> Iterator[Problem]:
    for each in shards:
        if each.shard.damage == MISSING:
            yield Problem.of(
                "VSE-D096", "{shard}: missing; put it there and repeat the command, which reads it alone, or set "
                "on_damaged: skip.", shard=each.task.address,
            )
        elif each.shard.damage:
            yield Problem.of(
                "VSE-D097", "{shard}: cannot be read to its end ({reason}), {images:,} images stand before that; mend "
                "it and repeat the command, which reads it alone, or set on_damaged: skip to use these.",
                shard=each.task.address, reason=each.shard.damage, images=each.shard.images,
            )


def _finish(
    recipe: IndexRecipe, shards: Sequence[_Listed], words: Counter[str], place: str, notes: list[str]
) -> Manifest:
    """Write the list of left-out images, the vocabulary and, last of all, the manifest."""
    by_split = {
        split: [each for each in shards if each.task.split == split] for split in ("train", "validation", "test")
    }
    splits = {split: _split_info(recipe, split, listed) for split, listed in by_split.items() if listed}
    content, vocabulary = vocabulary_of(words, min_count=recipe.vocabulary_min_count)
    manifest = Manifest(
        name=recipe.name, splits=splits,
        features=FeatureInfo(extractor="none", regions=1, regions_min=1, width=0),
        vocabulary=vocabulary, images_stored=True, recipe_fingerprint=recipe.content_fingerprint(),
        notes=[*notes, *_notes(recipe, by_split)],
    )
    write_at(place, LEFT_OUT_FILE, _left_out_table(shards))
    write_at(place, VOCABULARY_FILE, content)
    write_at(place, MANIFEST_FILE, manifest.to_bytes())
    return manifest


def _split_info(recipe: IndexRecipe, split: str, listed: Sequence[_Listed]) -> SplitInfo:
    """DataError for a split without images, or a weight that its captions do not allow."""
    _require_equal_captions(listed)
    shards: list[ShardInfo] = []
    images = captions = 0
    for each in listed:
        left_out = [*each.shard.undecodable]
        count, texts = each.shard.images, each.shard.captions
        if recipe.duplicates == "leave_out":
            left_out += each.shard.duplicates
            count -= len(each.shard.duplicates)
            texts -= sum(duplicate.captions for duplicate in each.shard.duplicates.values())
        if not count:
            continue
        shards.append(ShardInfo(
            file=f"{each.task.name}.tar", sha256=each.shard.sha256, bytes=each.shard.bytes, images=count,
            captions=texts, first_image=images, first_caption=captions,
            outside=OutsideShard(
                address=each.task.address, captions=each.task.captions, key_ends_at=each.task.key_ends_at,
                texts=f"{TEXTS}/{each.texts_sha256}.jsonl", texts_sha256=each.texts_sha256, left_out=left_out,
                weight=each.source.weight,
            ),
        ))
        images, captions = images + count, captions + texts
    if not shards:
        reasons = [*_reasons(listed), *(each.shard.damage for each in listed if each.shard.damage)]
        first = next((f"; for example {each}" for each in reasons if ":" in each), "" if reasons else "no samples")
        told = one_line(_counts(reasons) + first, most=400)
        raise DataError(
            "VSE-D100", "split {split}: none of its samples has a picture and a caption ({reasons}); check its shards "
            "and `captions` of the recipe.", split=split, reasons=told,
        )
    with_images = [each.shard for each in listed if each.shard.images]
    return SplitInfo(
        images=images, captions=captions, captions_mean=captions / images, shards=shards,
        captions_min=min(each.captions_min for each in with_images),
        captions_max=max(each.captions_max for each in with_images),
    )


def _require_equal_captions(listed: Sequence[_Listed]) -> None:
    """DataError for a weight that is no whole number where images have different numbers of captions: the epochs would
    have different numbers of captions, because each reads another part of the images."""
    fewest: dict[float, int] = {}
    for each in listed:
        weight, shard = each.source.weight, each.shard
        if shard.images and not weight.is_integer():
            first = fewest.setdefault(weight, shard.captions_min)
            if not first == shard.captions_min == shard.captions_max:
                raise DataError(
                    "VSE-D101", "shards: weight {weight:g} needs images with equal numbers of captions, those of "
                    "{shard} differ; use a whole number.", weight=weight, shard=each.task.address,
                )


def _notes(recipe: IndexRecipe, by_split: Mapping[str, Sequence[_Listed]]) -> list[str]:
    """Notes on damaged shards, broken samples and duplicates."""
    notes = [
        f"{each.task.address}: {each.shard.damage}; {each.shard.images:,} images of it are used"
        for listed in by_split.values() for each in listed if each.shard.damage
    ]
    for split, listed in by_split.items():
        images, reasons = sum(each.shard.images for each in listed), _reasons(listed)
        if reasons:
            notes.append(
                f"{split}: {len(reasons):,} of {len(reasons) + images:,} samples are left out ({_counts(reasons)}); "
                f"{LEFT_OUT_FILE} lists them"
            )
        unused = [reason for each in listed for reasons in each.shard.unused.values() for reason in reasons]
        if unused:
            notes.append(
                f"{split}: {len(unused):,} captions of the other samples are left out ({_counts(unused)}); "
                f"{LEFT_OUT_FILE} lists them"
            )
        has_lines = sum(each.shard.has_lines for each in listed)
        if has_lines:
            notes.append(
                f"{split}: {has_lines:,} of {images:,} texts have several lines, and each is one caption; `captions: "
                "txt_lines` makes a caption of each line"
            )
        doubles = Counter(found.alike for each in listed for found in each.shard.duplicates.values())
        if doubles:
            ways = ", ".join(f"{count:,} {alike}" for alike, count in sorted(doubles.items()))
            done = "left out" if recipe.duplicates == "leave_out" else "kept; duplicates: leave_out leaves them out"
            notes.append(
                f"{split}: {doubles.total():,} images are in an evaluation split too ({ways}), {done}; {LEFT_OUT_FILE} "
                "lists them"
            )
    if recipe.captions == "txt_lines":
        notes.append("each line of a .txt is a caption; `captions: txt` makes one of a whole .txt")
    return notes


def _reasons(listed: Sequence[_Listed]) -> list[str]:
    """Why samples are left out, for each of them."""
    return [reason for each in listed for reasons in each.shard.left_out.values() for reason in reasons]


def _counts(reasons: Sequence[str]) -> str:
    """`3 no .txt, 1 picture cannot be decoded`: the causes, most frequent first."""
    counts = Counter(reason.partition(":")[0] for reason in reasons).most_common()
    rest = [f"{sum(count for _, count in counts[_MOST_REASONS:]):,} other"] if len(counts) > _MOST_REASONS else []
    return ", ".join([*(f"{count:,} {cause}" for cause, count in counts[:_MOST_REASONS]), *rest])


def _left_out_table(shards: Sequence[_Listed]) -> bytes:
    """CSV of samples that are not used, duplicates, and captions that are not used."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["split", "image", "reason"])
    for each in shards:
        doubles = {key: [f"{found.alike} as {found.of}"] for key, found in each.shard.duplicates.items()}
        for key, reasons in itertools.chain.from_iterable(
            found.items() for found in (each.shard.left_out, doubles, each.shard.unused)
        ):
            name = image_name(each.task.address, key)
            table.writerows([each.task.split, name, one_line(reason)] for reason in reasons)
    return text.getvalue().encode(errors="replace")


def _locked(place: str) -> ExitStack:
    """Lock the output for this process; a prefix has no lock. StorageError: another process indexes it. StudyConflict:
    the folder has other files."""
    if is_remote(place):
        return ExitStack()
    folder = Path(place) / RECORDS
    if not folder.is_dir() and Path(place).is_dir():
        refuse_foreign_files(Path(place))
    make_folder(folder)
    make_folder(Path(place) / TEXTS)
    return locked(place, folder)
