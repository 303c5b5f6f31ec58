"""Sentences that a network writes for images, words it finds wrong, and wrong captions it corrects."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import get_args

import torch
from torch import Tensor

from vsetune.config.study.evaluation_settings import GallerySpec
from vsetune.data.looking.show import Picture, ReadableIds
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs
from vsetune.networks.network_base import evaluating
from vsetune.networks.sentence_writing import SentenceWriting, Verdict, WordFindings, WrittenSentences
from vsetune.report.gallery.rankings import HardestNegative, Ranking
from vsetune.training.trained import TrainedTrial
from vsetune.training.validation import EncodedSplit, caption_inputs, split_batches

_OF_EACH_VERDICT = 2
"""Number of filtered sentences shown for each verdict, by highest score."""
_ORDER: tuple[Verdict, ...] = get_args(Verdict)
_MOST_STEPS = 12
"""Most words of a caption that are corrected."""
_ANYWAY = 3
"""Words that are corrected if none is found wrong: those most likely to be wrong."""
_WRONG_BELOW = 0.5
"""Probability of being unchanged below which a word counts as found wrong (Fan et al. 2022, Section 4.4)."""


@dataclass(frozen=True)
class Word:
    """A word of a sentence, or a piece of one. joins: it continues the piece before it. was: the caption's word in its
    place, None if it is the same. is_filled: it was masked.

    doubt: probability that it was replaced. mended: the word that the network predicts there; certainty: its
    probability. All three are None without such a head, or if the word was not judged.
    """

    text: str
    joins: bool = False
    was: str | None = None
    is_filled: bool = False
    doubt: float | None = None
    mended: str | None = None
    certainty: float | None = None


@dataclass(frozen=True)
class Sentence:
    """A synthetic sentence (words), and the masked copy that it was written from (source)."""

    words: list[Word]
    source: list[Word]
    score: float
    verdict: Verdict


@dataclass(frozen=True)
class Examined:
    """A sentence word by word. corrected: the sentence with every word found wrong replaced by the predicted word; None
    without the correction head, or if nothing changes."""

    words: list[Word]
    score: float
    corrected: list[Word] | None
    corrected_score: float | None


@dataclass(frozen=True)
class Written:
    """Sentences for one caption (index in the split) with its image. shown: some of the sentences; counts: of all
    sentences, by verdict.

    examined: the sentence of verdict `kept` with the highest score; None without one, or if no head judges words.
    """

    image: int
    caption: int
    score: float
    shown: list[Sentence]
    counts: dict[Verdict, int]
    examined: Examined | None


@dataclass(frozen=True)
class Steps:
    """read: words and score of a caption, then after every step, each with one more word corrected. finds_any: a word
    is found wrong; otherwise the words most likely to be wrong are corrected. is_cut: further steps were left out."""

    read: list[tuple[list[Word], float]]
    finds_any: bool
    is_cut: bool


@dataclass(frozen=True)
class CaptionLook:
    """A caption beside one image, its own or another. picture: of the caption's own image. inputs: of the caption."""

    writing: SentenceWriting
    reader: ReadableIds
    image: Encoded
    picture: Picture
    caption: int
    inputs: CaptionInputs

    def written(self, found: WrittenSentences, image: int, *, most: int) -> Written:
        """The sentences to show: those of verdict `kept` with the highest scores, and a few of every other verdict."""
        by_score = found.scores.argsort(descending=True, stable=True).tolist()
        shown, seen = [], Counter[Verdict]()
        for place in by_score:
            verdict = found.verdicts[place]
            seen[verdict] += 1
            if seen[verdict] <= (most if verdict == "kept" else _OF_EACH_VERDICT):
                shown.append(place)
        shown.sort(key=lambda place: _ORDER.index(found.verdicts[place]))
        kept = [place for place in by_score if found.verdicts[place] == "kept"]
        sentences = [self._sentence(found, place) for place in shown]
        examined = self._examined(found.tokens[kept[0]], found.is_filled[kept[0]]) if kept else None
        return Written(image, self.caption, float(self._judged(self.inputs.tokens[0]).scores), sentences,
                       dict(seen), examined)

    def corrected(self) -> Steps | None:
        """Corrections in steps, the word most likely to be wrong first, each place once. None without the correction
        head."""
        ids, read, tried = self.inputs.tokens[0].clone(), [], set[int]()
        found = self._judged(ids)
        if found.mended is None:
            return None
        finds_any = _most_wrong(found, ids, tried, below=_WRONG_BELOW) is not None
        below, most = (_WRONG_BELOW, _MOST_STEPS) if finds_any else (torch.inf, _ANYWAY)
        while True:
            read.append((self._words(ids, found=found), float(found.scores)))
            place = _most_wrong(found, ids, tried, below=below)
            if place is None or len(tried) == most:
                return Steps(read, finds_any, is_cut=place is not None)
            assert found.mended is not None
            tried.add(place)
            ids[place] = found.mended[0, place]
            found = self._judged(ids)

    def _examined(self, ids: Tensor, is_filled: Tensor) -> Examined | None:
        found = self._judged(ids)
        if found.unchanged is None and found.mended is None:
            return None
        words, score = self._words(ids, is_filled=is_filled, found=found), float(found.scores)
        if found.mended is None:
            return Examined(words, score, None, None)
        is_wrong = found.is_judged[0] & (is_filled if found.unchanged is None else found.unchanged[0] < _WRONG_BELOW)
        corrected = torch.where(is_wrong, found.mended[0], ids)
        if torch.equal(corrected, ids):
            return Examined(words, score, None, None)
        return Examined(words, score, self._words(corrected), float(self._judged(corrected).scores))

    def _judged(self, ids: Tensor) -> WordFindings:
        """ids: (L,)."""
        return self.writing.judge_words(self.image, CaptionInputs(ids[None], self.inputs.lengths))

    def _sentence(self, found: WrittenSentences, place: int) -> Sentence:
        is_filled = found.is_filled[place]
        words, source = (self._words(ids[place], is_filled=is_filled) for ids in (found.tokens, found.masked))
        return Sentence(words, source, float(found.scores[place]), found.verdicts[place])

    def _words(
        self, ids: Tensor, *, is_filled: Tensor | None = None, found: WordFindings | None = None
    ) -> list[Word]:
        """The words without start and end. ids: (L,), as long as the caption."""
        words = []
        own = self.inputs.tokens[0].tolist()
        for place, number in enumerate(ids.tolist()):
            if not 0 < place < len(own) - 1:
                continue
            text, joins = self._text(number, place)
            word = Word(
                text, joins, was=None if number == own[place] else self._text(own[place], place)[0],
                is_filled=is_filled is not None and bool(is_filled[place]),
            )
            words.append(word if found is None else self._with_findings(word, found, place))
        return words

    def _with_findings(self, word: Word, found: WordFindings, place: int) -> Word:
        if not found.is_judged[0, place]:
            return word
        if found.unchanged is not None:
            word = replace(word, doubt=1 - float(found.unchanged[0, place]))
        if found.mended is not None and found.certainty is not None:
            mended, _ = self._text(int(found.mended[0, place]), place)
            word = replace(word, mended=mended, certainty=float(found.certainty[0, place]))
        return word

    def _text(self, number: int, place: int) -> tuple[str, bool]:
        """(text, joins) of an id. The caption's own words are spelled as in the caption."""
        written = self.picture.words[self.caption - self.picture.first_caption]
        if self.reader.are_words and number == int(self.inputs.tokens[0, place]) and place <= len(written):
            return written[place - 1], False
        return self.reader.text(number)


def _most_wrong(found: WordFindings, ids: Tensor, tried: Collection[int], *, below: float) -> int | None:
    """The place most likely to be wrong, among untried places with a different predicted word; None without one.

    below: only words with a smaller probability of being unchanged count. Without the detection head every word counts
    whose predicted word differs, and the one that the correction head gives the smallest probability is taken.
    """
    assert found.mended is not None
    assert found.present is not None
    is_open = found.is_judged[0] & (found.mended[0] != ids)
    is_open[list(tried)] = False
    likely = found.present[0]
    if found.unchanged is not None:
        likely = found.unchanged[0]
        is_open &= likely < below
    return int(likely.masked_fill(~is_open, torch.inf).argmin()) if is_open.any() else None


@dataclass(frozen=True)
class Correction:
    """A corrected caption of another image; indices in the split. true: the image's own caption with the highest score.
    """

    image: int
    true: int
    true_score: float
    caption: int
    steps: Steps


@dataclass(frozen=True)
class SentenceFindings:
    """about: how the network writes. notes: one sentence for each thing that is not shown, with the reason."""

    about: str
    notes: list[str]
    written: list[Written]
    corrections: list[Correction]


@dataclass(frozen=True)
class Chosen:
    """captions: (image, caption) pairs to write sentences for. wrong: image queries, each with a caption to correct."""

    captions: list[tuple[int, int]]
    wrong: list[HardestNegative]

    @property
    def images(self) -> set[int]:
        """Images that are shown."""
        return {image for image, _ in self.captions} | {each.query for each in self.wrong}

    @property
    def all_captions(self) -> set[int]:
        """Captions that are read."""
        return {caption for _, caption in self.captions} | {each.wrong for each in self.wrong}


def choose(
    owner: Sequence[int], images: int, wanted: GallerySpec, hard: Sequence[HardestNegative], drawn: Sequence[Ranking]
) -> Chosen:
    """Images and one caption of each, sampled with the seed, and wrong captions to correct.

    hard: image queries, widest gap first; their wrong captions come first. drawn: image queries of the gallery; their
    wrong captions follow if `hard` has too few.
    """
    rng = random.Random(f"written/{wanted.seed}")
    own: dict[int, list[int]] = {}
    for caption, image in enumerate(owner):
        own.setdefault(image, []).append(caption)
    chosen = sorted(rng.sample(range(images), min(images, wanted.written)))
    wrong = {each.query: each for each in hard}
    for ranking in drawn:
        if ranking.hardest_negative is not None:
            true, negative = ranking.best_true, ranking.hardest_negative
            each = HardestNegative(ranking.query, true.index, true.score, negative.index, negative.score)
            wrong.setdefault(ranking.query, each)
    return Chosen([(image, rng.choice(own[image])) for image in chosen], list(wrong.values())[: wanted.corrected])


def sentence_findings(
    trained: TrainedTrial, split: str, wanted: GallerySpec, chosen: Chosen, *, encoded: EncodedSplit,
    pictures: Mapping[int, Picture],
) -> SentenceFindings | None:
    """Sentences and corrections; None for a network that neither writes nor corrects.

    encoded: the split, encoded by this network. pictures: of the owners of all chosen captions. Sampling leaves torch's
    random generators unchanged.
    """
    writing = trained.network.sentence_writing()
    if writing is None:
        return None
    reader = ReadableIds(trained.dataset, trained.trial.network.reads.word_pieces)
    captions = _captions_for_masking(trained, split, chosen.all_captions, encoded.owner.tolist())
    written, corrections = [], []

    def look_at(image: int, caption: int) -> CaptionLook:
        picture = pictures[int(encoded.owner[caption])]
        return CaptionLook(writing, reader, encoded.images[image : image + 1], picture, caption, captions[caption])

    with evaluating(trained.network):
        for image, caption in chosen.captions:
            look = look_at(image, caption)
            with _own_draws(f"written/{wanted.seed}/{caption}", trained.device):
                found = writing.write(look.image, look.inputs)
            if found is not None:
                written.append(look.written(found, image, most=wanted.sentences))
        for each in chosen.wrong:
            steps = look_at(each.query, each.wrong).corrected()
            if steps is not None:
                corrections.append(Correction(each.query, each.true, each.true_score, each.wrong, steps))
    notes = [*writing.lacks, *_notes(trained, captions, written)]
    return SentenceFindings(writing.about, notes, written, corrections)


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
    trained: TrainedTrial, split: str, captions: Collection[int], owner: Sequence[int]
) -> dict[int, CaptionInputs]:
    """Inputs by caption, without padding, with its phrases and the other captions of its image."""
    found: dict[int, CaptionInputs] = {}
    images = sorted({owner[caption] for caption in captions})
    if not images:
        return found
    reads, threads = replace(trained.trial.network.reads, siblings=True), trained.trial.training.loader_workers
    with split_batches(
        trained.dataset, split, reads=reads, threads=threads, images=images, for_masking=True
    ) as batches:
        for batch in batches:
            inputs = caption_inputs(batch.to(trained.device))
            for row, caption in enumerate(batch.caption_ids.tolist()):
                if caption in captions:
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
