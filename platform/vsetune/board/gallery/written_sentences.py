"""Sentences that a network writes for images of a split, with what its filter says of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import get_args

import torch
from torch import Tensor

from vsetune.board.gallery.heat_maps import encoded_caption
from vsetune.config.study.evaluation_settings import GallerySpec
from vsetune.data.batches.reader import evaluation_batches
from vsetune.data.looking.show import Picture, ReadableIds
from vsetune.networks.inputs import CaptionInputs
from vsetune.networks.network_base import evaluating
from vsetune.networks.sentence_writing import Verdict, WrittenSentences
from vsetune.training.trained import TrainedTrial
from vsetune.training.validation import EncodedSplit, images_per_batch

_OF_EACH_VERDICT = 2
"""Number of filtered sentences shown for each verdict, by highest score."""
_ORDER: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True)
class Word:
    """A word of a sentence, or a piece of one. joins: it continues the piece before it. was: the caption's word in its
    place, None if it is the same. is_filled: it was masked."""

    text: str
    joins: bool
    was: str | None
    is_filled: bool


@dataclass(frozen=True)
class Sentence:
    """A synthetic sentence (words), and the masked copy that it was written from (source)."""

    words: list[Word]
    source: list[Word]
    score: float
    verdict: Verdict


@dataclass(frozen=True)
class Written:
    """Sentences for one caption (index in the split) with its image and their score. shown: some of the sentences;
    counts: of all sentences, by verdict."""

    image: int
    caption: int
    score: float
    shown: list[Sentence]
    counts: dict[Verdict, int]


@dataclass(frozen=True)
class GallerySentences:
    """about: how the network writes. notes: one sentence for each thing that is not shown, with the reason."""

    about: str
    notes: list[str]
    written: list[Written]


def chosen_captions(owner: Sequence[int], images: int, wanted: GallerySpec) -> dict[int, int]:
    """A caption of each of some images, sampled with the seed, by image. owner: image of each caption."""
    rng = random.Random(f"written/{wanted.seed}")
    own: dict[int, list[int]] = {}
    for caption, image in enumerate(owner):
        own.setdefault(image, []).append(caption)
    chosen = sorted(rng.sample(range(images), min(images, wanted.written)))
    return {image: rng.choice(own[image]) for image in chosen}


def written_sentences(
    trained: TrainedTrial, split: str, wanted: GallerySpec, chosen: Mapping[int, int], *, encoded: EncodedSplit,
    pictures: Mapping[int, Picture],
) -> GallerySentences | None:
    """Sentences for the chosen captions, by image; None for a network that does not write.

    encoded: the split, encoded by this network. pictures: of all these images. Sampling leaves torch's random
    generators unchanged.
    """
    writing = trained.network.sentence_writing()
    if writing is None:
        return None
    reader = ReadableIds(trained.dataset, trained.trial.network.reads.word_pieces)
    captions = _captions_for_masking(trained, split, chosen)
    written = []
    with evaluating(trained.network):
        for image, caption in chosen.items():
            vectors, inputs = encoded.images[image : image + 1], captions[caption]
            with _own_draws(f"written/{wanted.seed}/{caption}", trained.device):
                found = writing.write(vectors, inputs)
            if found is not None:
                score = float(trained.network.similarity(vectors, encoded_caption(encoded, caption)))
                picture = pictures[image]
                spelled = picture.words[caption - picture.first_caption]
                shown, counts = _shown(found, most=wanted.sentences)
                sentences = [_sentence(found, place, inputs.tokens[0], spelled, reader) for place in shown]
                written.append(Written(image, caption, score, sentences, counts))
    return GallerySentences(writing.about, [*writing.lacks, *_notes(trained, captions, written)], written)


def _shown(found: WrittenSentences, *, most: int) -> tuple[list[int], dict[Verdict, int]]:
    """Those of verdict `kept` with the highest scores and a few of every other verdict; and how many each has."""
    shown, seen = [], Counter[Verdict]()
    for place in found.scores.argsort(descending=True, stable=True).tolist():
        verdict = found.verdicts[place]
        seen[verdict] += 1
        if seen[verdict] <= (most if verdict == "kept" else _OF_EACH_VERDICT):
            shown.append(place)
    return sorted(shown, key=lambda place: _ORDER.index(found.verdicts[place])), dict(seen)


def _sentence(
    found: WrittenSentences, place: int, caption: Tensor, spelled: Sequence[str], reader: ReadableIds
) -> Sentence:
    """caption: (L,) its ids. spelled: its words."""
    words, source = (
        _words(ids[place], caption, found.is_filled[place], spelled, reader) for ids in (found.tokens, found.masked)
    )
    return Sentence(words, source, float(found.scores[place]), found.verdicts[place])


def _words(
    ids: Tensor, caption: Tensor, is_filled: Tensor, spelled: Sequence[str], reader: ReadableIds
) -> list[Word]:
    """The words without start and end. ids: (L,). The caption's own words are spelled as in the caption."""

    def read(number: int, place: int) -> tuple[str, bool]:
        is_own = reader.are_words and number == own[place] and place <= len(spelled)
        return (spelled[place - 1], False) if is_own else reader.text(number)

    own, words = caption.tolist(), []
    for place, number in list(enumerate(ids.tolist()))[1 : len(own) - 1]:
        was = None if number == own[place] else read(own[place], place)[0]
        words.append(Word(*read(number, place), was, bool(is_filled[place])))
    return words


def _notes(trained: TrainedTrial, captions: Mapping[int, CaptionInputs], written: Sequence[Written]) -> Iterator[str]:
    if written and all(each.phrases is None for each in captions.values()):
        if trained.trial.network.reads.phrases:
            yield (
                "The data set has no phrases of its captions, so single words are masked (vsetune data parse FOLDER "
                "--phrases adds them)."
            )
        else:
            yield "Its training read no phrases, so single words are masked."
    if any(phase.network for phase in trained.trial.training.phases):
        yield "Shown are the best weights: a head whose loss begins in a later phase than these has not learned yet."


def _captions_for_masking(
    trained: TrainedTrial, split: str, chosen: Mapping[int, int]
) -> dict[int, CaptionInputs]:
    """Inputs by caption, without padding, with its phrases and the other captions of its image."""
    found: dict[int, CaptionInputs] = {}
    if not chosen:
        return found
    wanted: Collection[int] = set(chosen.values())
    reads, threads = replace(trained.trial.network.reads, siblings=True), trained.trial.training.loader_workers
    with closing(evaluation_batches(
        trained.dataset, split, batch_size=images_per_batch(reads.pixels), reads=reads, threads=threads,
        images=sorted(chosen), for_masking=True,
    )) as batches:
        for batch in batches:
            inputs = batch.to(trained.device).captions
            for row, caption in enumerate(batch.caption_ids.tolist()):
                if caption in wanted:
                    found[caption] = _one(inputs, row)
    return found


def _one(inputs: CaptionInputs, row: int) -> CaptionInputs:
    length, here = int(inputs.lengths[row]), slice(row, row + 1)
    phrases, siblings = inputs.phrases, inputs.siblings
    return CaptionInputs(
        inputs.tokens[here, :length], inputs.lengths[here],
        phrases=None if phrases is None else phrases[here, :, :length],
        siblings=None if siblings is None else siblings[here],
    )


@contextmanager
def _own_draws(name: str, device: torch.device) -> Iterator[None]:
    """Context in which torch samples with a seed derived from the name; its generators are restored afterwards."""
    seed = random.Random(name).getrandbits(63)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
