"""One caption beside one image, its own or another: sentences written from it, and its words found wrong and corrected.

Letters of shapes: C sentences, L ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import get_args

import torch
from torch import Tensor

from vsetune.data.looking.pictures import Picture
from vsetune.data.looking.readable_ids import ReadableIds
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs
from vsetune.networks.sentence_writing import SentenceWriting, Verdict, WordFindings, WrittenSentences

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
