"""Dependency parses of captions, one array per split, and phrases for networks that mask them."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from vsetune.config.sources.recipe import ParsesSpec
from vsetune.data.captions.parse_files import (
    HEADS_DTYPE,
    PARSES_FILE,
    PARSES_FORMAT,
    Parses,
    SplitParses,
    SplitPhrases,
    again,
    are_there,
    fetched_array,
)
from vsetune.data.captions.phrase_rules import PHRASE_DTYPE, Phrase, counted, decoded, encoded
from vsetune.data.captions.spacy_parser import load_parser, load_phrase_finder
from vsetune.data.progress import ProgressSink
from vsetune.data.stored import storage
from vsetune.data.stored.array_cache import cached_array
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.manifest import first_problem
from vsetune.data.stored.plain_files import parse_shallow_json
from vsetune.data.stored.shards import iter_words
from vsetune.errors import DataError, Message, StorageError, StudyConflict, one_line
from vsetune.home import s3
from vsetune.home.addresses import is_remote, join
from vsetune.home.hashes import sha256_hex
from vsetune.home.whole_files import readable_json, write_whole

PARSES_OTHER_CAPTIONS = Message("VSE-D078", "{folder}: its parses are of other captions than split {split}; {fix}")

NO_HEAD, NOT_PARSED = -1, -2
_PHRASE_RULES = "phrases-1"
"""Part of the file names: raise the number when the phrases of an equal parse change."""


def read_parses(path: str) -> Parses | None:
    """The parses of a data folder or s3:// prefix; None if there are none. DataError for a damaged parses.json."""
    where = join(path, PARSES_FILE)
    content = storage.find_inside(path, PARSES_FILE)
    if content is None:
        return None
    plain = parse_shallow_json(content, where=where, fix=f"delete it, then {again(path)}")
    try:
        parses = Parses.model_validate(plain)
    except ValidationError as error:
        raise DataError(
            "VSE-D076", "{where}: damaged ({reason}); delete it, then {fix}", where=where, reason=first_problem(error),
            fix=again(path),
        ) from error
    if parses.format != PARSES_FORMAT:
        raise DataError(
            "VSE-D076", "{where}: damaged ({reason}); delete it, then {fix}", where=where,
            reason=f"format {one_line(repr(parses.format))}, need {PARSES_FORMAT!r}", fix=again(path),
        )
    return parses


def parse_dataset(path: str, pipeline: str, *, phrases: bool = False, progress: ProgressSink) -> Parses:
    """Parse every caption of a data set, unless that is done already. After a kill the same call continues at the
    unfinished split.

    phrases: find those too; existing parses stay.
    ConfigError: no such pipeline. StorageError: the place cannot be written. StudyConflict: it has parses by another
    pipeline, or another version of it. DataError: damaged shards.
    """
    dataset = Dataset.open(path)
    dataset.check_files(dataset.manifest.splits)
    found = read_parses(path)
    parses, files = None, []
    if found is not None and _fits(found, dataset):
        _require_same(found, pipeline, path)
        phrases = phrases or found.has_phrases
        parses = found if are_there(found, path) else None
        if parses is not None and found.has_phrases == phrases:
            return found
    if parses is None:
        arrays = {split: _parsed(dataset, split, pipeline, progress) for split in dataset.manifest.splits}
        files += [_kept(array, path)[0] for array in arrays.values()]
        parses = Parses(
            pipeline=pipeline, version=load_parser(pipeline).version,
            splits={split: _described(dataset, split, array) for split, array in arrays.items()},
        )
    if phrases:
        arrays = {split: _phrased(dataset, split, parses, progress) for split in dataset.manifest.splits}
        files += [_kept(array, path)[0] for array in arrays.values()]
        parses = _with_phrases(parses, arrays, path)
    _store(parses, files, path)
    return parses


def require_pipeline(path: str, wanted: ParsesSpec) -> None:
    """Load the pipeline that `parse_dataset` will need, for a data set that may not exist yet, so that a missing one is
    reported before hours of work. ConfigError."""
    found = read_parses(path)
    if found is None:
        load_parser(wanted.pipeline)
    if wanted.phrases and (found is None or not found.has_phrases):
        load_phrase_finder(wanted.pipeline)


def copy_parses(folder: Path, prefix: str) -> None:
    """Copy the parses of a local data set, if it has any, to its copy under an s3:// prefix. StorageError."""
    parses = read_parses(str(folder))
    if parses is None:
        return
    there = join(prefix, PARSES_FILE)
    if storage.exists(there) and storage.read_bytes(there) == readable_json(parses.to_plain()):
        return
    _store(parses, [folder / file for file in parses.files()], prefix)


def word_heads(dataset: Dataset, split: str) -> np.ndarray:
    """(captions, words) int16, see `SplitParses`. Mapped, read-only; for a remote data set copied here first.

    DataError, with the command that makes them, if there are no parses of these captions.
    """
    info = parses_of(dataset, split)
    if info is None:
        raise DataError(
            "VSE-D075", "{folder}: has no parses of its captions; add them: vsetune data parse {folder}",
            folder=dataset.path,
        )
    fetch = partial(fetched_array, info, info.captions, dataset.path)
    return cached_array(dataset.path, info.file, rows=info.captions, make=fetch, dtype=HEADS_DTYPE)


def phrase_codes(dataset: Dataset, split: str) -> np.ndarray | None:
    """(captions, longest) int16, see `vsetune.data.captions.phrase_rules`; mapped as `word_heads`. None if the data set
    has no phrases. DataError if they are damaged or of other captions."""
    info = parses_of(dataset, split)
    if info is None or info.phrases is None:
        return None
    fetch = partial(fetched_array, info.phrases, info.captions, dataset.path)
    return cached_array(dataset.path, info.phrases.file, rows=info.captions, make=fetch, dtype=PHRASE_DTYPE)


def require_as_listed(dataset: Dataset, split: str) -> None:
    """DataError when parses or phrases of a split differ, in any bit, from what was listed.

    `word_heads` and `phrase_codes` do not check this again for local data; data from an s3:// prefix is compared when
    it is downloaded.
    """
    info = parses_of(dataset, split)
    for each in (info, None if info is None else info.phrases):
        if info is not None and each is not None and not is_remote(dataset.path):
            fetched_array(each, info.captions, dataset.path)


def parses_of(dataset: Dataset, split: str) -> SplitParses | None:
    """The list entry of a split; None if the data set has no parses. DataError if they are of other captions."""
    parses = read_parses(dataset.path)
    if parses is None:
        return None
    info = parses.splits.get(split)
    if info is None or info.captions_fingerprint != dataset.split(split).captions_fingerprint:
        raise DataError(PARSES_OTHER_CAPTIONS(folder=dataset.path, split=split, fix=again(dataset.path)))
    if info.captions != dataset.split(split).captions:
        raise DataError(PARSES_OTHER_CAPTIONS(folder=dataset.path, split=split, fix=again(dataset.path)))
    return info


def joined_words(heads: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """(captions, L, L) bool over token positions: a parse joins two words; both orders, no diagonal.

    heads: (captions, words), rows of `word_heads`. lengths: (captions,) token ids, start and end included; L is the
    longest. Word w is at position w + 1. DataError for a head beyond its caption.
    """
    heads = heads[:, : lengths.max()]
    caption, word = np.nonzero(heads >= 0)
    head = heads[caption, word].astype(np.int64)
    if (np.maximum(word, head) > lengths[caption] - 3).any():
        raise DataError(
            "VSE-D082", "parses: a head is beyond the words of its caption; make them again: vsetune data parse"
        )
    joined = np.zeros((len(lengths), lengths.max(), lengths.max()), np.bool_)
    joined[caption, word + 1, head + 1] = True
    joined[caption, head + 1, word + 1] = True
    return joined


def _fits(parses: Parses, dataset: Dataset) -> bool:
    """Whether the parses are of the captions that the data set has now."""
    made_of = {split: info.captions_fingerprint for split, info in parses.splits.items()}
    return made_of == {split: dataset.split(split).captions_fingerprint for split in dataset.manifest.splits}


def _parsed(dataset: Dataset, split: str, pipeline: str, progress: ProgressSink) -> np.ndarray:
    """The array of a split, stored as soon as it is whole; its name identifies the content, so that it is found again.
    """
    captions = dataset.split(split).captions
    parser = load_parser(pipeline)

    def make() -> np.ndarray:
        progress.stage(f"parsing captions of {split}", captions)
        rows: list[np.ndarray | None] = []
        for heads in parser.heads(iter_words(dataset, split)):
            rows.append(heads)
            progress.advance(1)
        width = max((len(heads) for heads in rows if heads is not None), default=0)
        array = np.full((captions, max(1, width)), NO_HEAD, HEADS_DTYPE)  # an array without columns cannot be mapped
        for row, heads in zip(array, rows, strict=True):
            if heads is None:
                row[:] = NOT_PARSED
            else:
                row[: len(heads)] = heads
        return array

    made_of = sha256_hex(f"{pipeline} {parser.version} {dataset.split(split).captions_fingerprint}".encode())[:12]
    name = f"parses-{split}-{made_of}.npy"
    return cached_array(dataset.path, name, rows=captions, make=make, dtype=HEADS_DTYPE, sealed=False)


def _phrased(dataset: Dataset, split: str, parses: Parses, progress: ProgressSink) -> np.ndarray:
    """The array of the phrases of a split, stored like `_parsed`."""
    captions = dataset.split(split).captions
    finder = load_phrase_finder(parses.pipeline)
    if finder.version != parses.version:
        raise StudyConflict(
            "VSE-D079", "{folder}: has parses by {pipeline} {version}, its phrases would be by {installed}; install "
            "that version, or delete {file} to make both again.", folder=dataset.path, pipeline=parses.pipeline,
            version=parses.version, installed=finder.version, file=join(dataset.path, PARSES_FILE),
        )

    def make() -> np.ndarray:
        progress.stage(f"finding phrases in captions of {split}", captions)
        rows = []
        for phrases in finder.phrases(iter_words(dataset, split)):
            rows.append(phrases)
            progress.advance(1)
        return encoded(rows)

    says = f"{_PHRASE_RULES} {parses.pipeline} {finder.version} {dataset.split(split).captions_fingerprint}"
    name = f"phrases-{split}-{sha256_hex(says.encode())[:12]}.npy"
    return cached_array(dataset.path, name, rows=captions, make=make, dtype=PHRASE_DTYPE, sealed=False)


def _require_same(found: Parses, pipeline: str, path: str) -> None:
    if found.pipeline != pipeline:
        raise StudyConflict(
            "VSE-D080", "{folder}: has parses by {found} already, networks trained on both do not compare; delete "
            "{file} to replace them by {pipeline}.", folder=path, found=found.pipeline, file=join(path, PARSES_FILE),
            pipeline=pipeline,
        )


def _described(dataset: Dataset, split: str, array: np.ndarray) -> SplitParses:
    file, digest = _kept(array, dataset.path)
    return SplitParses(
        file=file.name, sha256=digest, captions_fingerprint=dataset.split(split).captions_fingerprint,
        captions=len(array), pairs=int((array >= 0).sum()), not_parsed=int((array[:, 0] == NOT_PARSED).sum()),
    )


def _with_phrases(parses: Parses, arrays: Mapping[str, np.ndarray], path: str) -> Parses:
    splits = dict(parses.splits)
    for split, array in arrays.items():
        (file, digest), (phrases, without) = _kept(array, path), counted(array)
        listed = SplitPhrases(file=file.name, sha256=digest, phrases=phrases, without=without)
        splits[split] = splits[split].model_copy(update={"phrases": listed})
    return parses.model_copy(update={"splits": splits})


def _kept(array: np.ndarray, path: str) -> tuple[Path, str]:
    """The file of a stored array, and its hash. StorageError if nothing could be written."""
    file = Path(str(getattr(array, "filename", "")))
    digest = storage.sha256_of(str(file))
    if digest is None:
        raise StorageError(
            "VSE-D081", "{folder}: its parses cannot be written; choose a place with room and rights.", folder=path
        )
    return file, digest


def _store(parses: Parses, files: Sequence[Path], path: str) -> None:
    """Store the arrays, then the list of them. Arrays of a local data set are already in its folder, unless the cache
    had them."""
    if is_remote(path):
        for file in files:
            s3.upload(file, join(path, file.name))
        with tempfile.TemporaryDirectory() as folder:
            write_whole(Path(folder) / PARSES_FILE, readable_json(parses.to_plain()), durable=True)
            s3.upload(Path(folder) / PARSES_FILE, join(path, PARSES_FILE))
        return
    for file in files:
        if file.parent != Path(path):
            write_whole(Path(path) / file.name, file.read_bytes(), durable=True)
    write_whole(Path(path) / PARSES_FILE, readable_json(parses.to_plain()), durable=True)


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CaptionPhrases:
    """The phrases of a split. codes: row = caption id; None where there are only single words. place: for messages."""

    codes: np.ndarray | None
    place: str

    def of(self, caption: int, *, words: int) -> list[Phrase]:
        """The phrases found in a caption of `words` words; may be empty. DataError for damaged ones."""
        if self.codes is None:
            return []
        try:
            return decoded(self.codes[caption], words=words)
        except DataError as error:
            raise DataError(
                "VSE-D083", "{folder}: caption {caption}: {reason}; {fix}", folder=self.place, caption=caption,
                reason=error, fix=again(self.place, phrases=True),
            ) from error


def caption_phrases(dataset: Dataset, split: str) -> CaptionPhrases:
    """The phrases of a split. For a data set without phrases single words are used, which is logged.

    DataError if they are damaged or of other captions.
    """
    codes = phrase_codes(dataset, split)
    if codes is None:
        _log.warning("%s", lacks_phrases(dataset.path))
    return CaptionPhrases(codes, dataset.path)


def lacks_phrases(place: str) -> str:
    """The message for a data set that lacks the phrases a network reads."""
    return (
        f"{place}: has no phrases of its captions, single words are masked instead; add them: vsetune data parse "
        f"{place} --phrases"
    )


def phrases_name(dataset: Dataset) -> str:
    """The pipeline that found the phrases, or `single words`; for records of attempts."""
    parses = read_parses(dataset.path)
    return "single words" if parses is None or not parses.has_phrases else f"{parses.pipeline} {parses.version}"
