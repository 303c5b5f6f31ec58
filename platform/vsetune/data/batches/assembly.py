"""Assembly of batches from their rows: padding, data stored outside the shards, decoding of photographs."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch

from vsetune.config.sources.trial_inputs import NetworkReads
from vsetune.data.batches.batch import Batch
from vsetune.data.captions.parses import CaptionPhrases, caption_phrases, joined_words, word_heads
from vsetune.data.captions.word_pieces import ids_of_phrases, piece_words, word_pieces, words_of_ids
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.shards import ImageSample
from vsetune.data.stored.vocabulary import PAD
from vsetune.networks.inputs import CaptionInputs, ImageInputs


@dataclass(frozen=True)
class PieceTables:
    """ids: (captions, T) word pieces. words: (captions, T) the word of each piece; None where there are no phrases."""

    ids: np.ndarray
    words: np.ndarray | None = None


@dataclass(frozen=True)
class CaptionTables:
    """Row = caption id; None where the network does not read it. mirrored_pieces: of captions of mirrored images.

    phrases: also None if the data set has none.
    """

    heads: np.ndarray | None = None
    pieces: PieceTables | None = None
    mirrored_pieces: PieceTables | None = None
    phrases: CaptionPhrases | None = None


def caption_tables(dataset: Dataset, split: str, reads: NetworkReads) -> CaptionTables:
    """Open the tables, making them first if needed. Keep the result if the split is read more than once.

    DataError for a data set without parses of these captions, or with damaged phrases, ConfigError for a text model
    that is not there. Missing phrases are logged.
    """
    heads = word_heads(dataset, split) if reads.dependencies else None
    found = caption_phrases(dataset, split) if reads.phrases else None
    phrases = found if found is not None and found.codes is not None else None
    if reads.word_pieces is None:
        return CaptionTables(heads, phrases=phrases)
    turned = _pieces(dataset, split, reads, phrases, mirrored=True) if reads.swaps_sides else None
    return CaptionTables(heads, _pieces(dataset, split, reads, phrases), turned, phrases)


def _pieces(
    dataset: Dataset, split: str, reads: NetworkReads, phrases: CaptionPhrases | None, *, mirrored: bool = False
) -> PieceTables:
    assert reads.word_pieces is not None
    ids = np.asarray(word_pieces(dataset, split, reads.word_pieces, mirrored=mirrored))
    if phrases is None:
        return PieceTables(ids)
    return PieceTables(ids, np.asarray(piece_words(dataset, split, reads.word_pieces, mirrored=mirrored)))


Row = tuple[ImageSample, range]
"""One row of a batch: an image, and the numbers of those of its captions that come with it."""


@dataclass(frozen=True)
class _Caption:
    """Caption `number` of an image. is_swapped: with left and right exchanged."""

    image: ImageSample
    number: int
    is_swapped: bool

    @property
    def caption_id(self) -> int:
        """The caption's row in the tables of the split."""
        return self.image.first_caption + self.number


@dataclass(frozen=True)
class Decoded:
    """pixels: (crops, 3, S, S) uint8. swaps_sides: the captions are those of the mirrored image."""

    pixels: np.ndarray
    swaps_sides: bool


Decode = Callable[[Row], Decoded]


class Map(Protocol):
    """The built-in `map`, or the one of a pool of threads: results in the order of the rows."""

    def __call__(self, function: Decode, rows: Iterable[Row], /) -> Iterable[Decoded]: ...


@contextmanager
def decoders(threads: int) -> Iterator[Map]:
    """Threads that decode photographs side by side (Pillow works outside the interpreter's lock); 0: the caller's."""
    if threads == 0:
        yield map
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="vsetune-decoder") as pool:
        yield pool.map


@dataclass(frozen=True)
class Assembly:
    """What batches are made of besides their rows; None where it is not asked for.

    tables, semantics: of all captions of the split, row = caption id. decode: photographs. siblings: whether each
    caption comes with the others of its image.
    """

    dataset: Dataset
    tables: CaptionTables
    semantics: np.ndarray | None = None
    decode: Decode | None = None
    siblings: bool = False

    def batch(self, rows: list[Row], mapped: Map) -> Batch:
        """The rows as one batch; their photographs are decoded through `mapped`."""
        decoded = None if self.decode is None else list(mapped(self.decode, rows))
        swapped = [False] * len(rows) if decoded is None else [each.swaps_sides for each in decoded]
        images = [image for image, _ in rows]
        captions = [
            _Caption(image, number, is_swapped)
            for (image, numbers), is_swapped in zip(rows, swapped, strict=True) for number in numbers
        ]
        ids = np.array([caption.caption_id for caption in captions], np.int64)
        tokens, lengths = _padded([self._ids_of(caption) for caption in captions])
        semantics, heads = self.semantics, self.tables.heads
        return Batch(
            images=ImageInputs(
                features=torch.from_numpy(self._features(images)),
                counts=torch.tensor([len(image.features) for image in images]),
                boxes=self._boxes(images),
                pixels=None if decoded is None else _stacked(decoded),
            ),
            captions=CaptionInputs(
                tokens=torch.from_numpy(tokens),
                lengths=torch.from_numpy(lengths),
                dependencies=None if heads is None else torch.from_numpy(joined_words(heads[ids], lengths)),
                phrases=self._phrases(captions, lengths),
                siblings=torch.from_numpy(self._siblings(captions)) if self.siblings else None,
            ),
            image_ids=torch.tensor([image.index for image in images]),
            caption_rows=torch.from_numpy(np.repeat(np.arange(len(rows)), [len(numbers) for _, numbers in rows])),
            caption_ids=torch.from_numpy(ids),
            semantic_vectors=None if semantics is None else torch.from_numpy(semantics[ids].astype(np.float32)),
        )

    def _ids_of(self, caption: _Caption) -> np.ndarray:
        """The ids of one caption."""
        pieces = self._pieces(caption)
        if pieces is not None:
            ids: np.ndarray = pieces.ids[caption.caption_id]
            return ids[: np.count_nonzero(ids)]
        tokens = caption.image.mirrored_tokens if caption.is_swapped else caption.image.tokens
        assert tokens is not None
        return tokens[caption.number]

    def _pieces(self, caption: _Caption) -> PieceTables | None:
        return self.tables.mirrored_pieces if caption.is_swapped else self.tables.pieces

    def _phrases(self, captions: list[_Caption], lengths: np.ndarray) -> torch.Tensor | None:
        """(captions, phrases, ids) bool. Words stay at their places when left and right are exchanged."""
        phrases = self.tables.phrases
        if phrases is None:
            return None
        words = words_of_ids(lengths)
        for place, each in zip(words, captions, strict=True):
            pieces = self._pieces(each)
            if pieces is not None and pieces.words is not None:
                place[:] = pieces.words[each.caption_id, : len(place)]
        word_counts = [len(each.image.tokens[each.number]) - 2 for each in captions]
        return torch.from_numpy(phrases_of(phrases, [each.caption_id for each in captions], word_counts, words))

    def _siblings(self, captions: list[_Caption]) -> np.ndarray:
        """(captions, others, words) int64."""
        return padded_groups([
            [self._ids_of(replace(own, number=other)) for other in range(len(own.image.tokens)) if other != own.number]
            for own in captions
        ])

    def _features(self, images: list[ImageSample]) -> np.ndarray:
        """(images, regions, width) float16, or (images, 1, 0) of photographs.

        numpy, not torch: torch would start a second team of CPU threads here.
        """
        if self.decode is not None:
            return np.empty((len(images), 1, 0), np.float16)
        features = _zeros((len(images), self.dataset.regions, self.dataset.width), np.float16)
        for row, image in enumerate(images):
            features[row, : len(image.features)] = image.features
        return features

    def _boxes(self, images: list[ImageSample]) -> torch.Tensor | None:
        """(images, regions, 4) float32, zero rows where an image has fewer regions; None if no boxes were read."""
        padded = np.zeros((len(images), self.dataset.regions, 4), np.float32)
        for row, image in enumerate(images):
            if image.boxes is None:
                return None
            padded[row, : len(image.boxes)] = image.boxes
        return torch.from_numpy(padded)


def phrases_of(
    phrases: CaptionPhrases, caption_ids: Iterable[int], word_counts: Iterable[int], words: np.ndarray
) -> np.ndarray:
    """(captions, phrases, ids) bool, see `ids_of_phrases`. word_counts: words of each, without start and end."""
    found = [
        [phrase.words for phrase in phrases.of(caption, words=count)]
        for caption, count in zip(caption_ids, word_counts, strict=True)
    ]
    return ids_of_phrases(found, words)


def padded_groups(groups: list[list[np.ndarray]]) -> np.ndarray:
    """(rows, captions, words) int64: the captions of each row, 0 where there are fewer or shorter ones."""
    lengths = [len(caption) for group in groups for caption in group]
    padded = np.full((len(groups), max(map(len, groups)), max(lengths, default=1)), PAD, np.int64)
    for row, group in zip(padded, groups, strict=True):
        for place, caption in zip(row, group, strict=False):
            place[: len(caption)] = caption
    return padded


def _padded(captions: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """((captions, words) int64, (captions,) int64 lengths)."""
    lengths = np.array([len(caption) for caption in captions], np.int64)
    padded = np.full((len(captions), lengths.max()), PAD, np.int64)
    for row, caption in enumerate(captions):
        padded[row, : len(caption)] = caption
    return padded, lengths


def _stacked(decoded: list[Decoded]) -> torch.Tensor:
    """(images, crops, 3, S, S) uint8."""
    pixels = _zeros((len(decoded), *decoded[0].pixels.shape), np.uint8)
    for row, each in enumerate(decoded):
        pixels[row] = each.pixels
    return torch.from_numpy(pixels)


def _zeros(shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
    """Zeros in a memory mapping of their own, returned to the system when the batch is dropped: on the heap, arrays
    this large leave holes, which made a trial of 1,200 steps grow to 4 GB."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return np.frombuffer(mmap.mmap(-1, size), dtype).reshape(shape)
