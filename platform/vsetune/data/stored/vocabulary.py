"""Captions to words, and words to ids. Fitted on the captions of the train split only."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Protocol

from vsetune.data.stored.plain_files import is_text, parse_shallow_json
from vsetune.errors import DataError, one_line

PAD, START, END, UNKNOWN, MASK = range(5)
SPECIAL_WORDS = ("<pad>", "<start>", "<end>", "<unknown>", "<mask>")


@dataclass(frozen=True)
class Vocabulary:
    """words[i] is the word with id i; the first five are SPECIAL_WORDS. len() is the number of ids."""

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.words[: len(SPECIAL_WORDS)] != SPECIAL_WORDS or len(set(self.words)) != len(self.words):
            raise DataError(
                "VSE-D032", "words start with {found}, need {need} and one id per word; ingest the data again",
                found=one_line(self.words[:5]), need=SPECIAL_WORDS,
            )

    @classmethod
    def build(cls, captions: Iterable[Sequence[str]], *, min_count: int) -> Vocabulary:
        """Words seen at least min_count times; most frequent first, equal counts in alphabetical order."""
        return cls.of_counts(Counter(word for caption in captions for word in caption), min_count=min_count)

    @classmethod
    def of_counts(cls, counts: Mapping[str, int], *, min_count: int) -> Vocabulary:
        """As `build`, from words that were counted already."""
        known = {word for word, count in counts.items() if count >= min_count} - {*SPECIAL_WORDS}
        kept = sorted(known, key=lambda word: (-counts[word], word))
        return cls(SPECIAL_WORDS + tuple(kept))

    @cached_property
    def _ids(self) -> dict[str, int]:
        # A caption that literally contains "<pad>" must not produce the padding id.
        return {word: number for number, word in enumerate(self.words) if number >= len(SPECIAL_WORDS)}

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, words: Iterable[str]) -> list[int]:
        """Ids with START in front and END behind; a word outside the vocabulary becomes UNKNOWN."""
        ids = self._ids
        return [START, *(ids.get(word, UNKNOWN) for word in words), END]

    def to_json(self) -> str:
        """One JSON object; `from_json` reads it back equal."""
        return json.dumps({"words": list(self.words)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str = "vocabulary") -> Vocabulary:
        """DataError, which begins with `where`, if the text is not what `to_json` writes."""
        plain = parse_shallow_json(text, where=where, fix="ingest the data again")
        words = plain.get("words") if isinstance(plain, dict) else None
        if not isinstance(words, list) or not all(map(is_text, words)):
            raise DataError(
                "VSE-D033", "{where}: not a vocabulary file (`words` is no list of strings); ingest the data again",
                where=where,
            )
        try:
            return cls(tuple(words))
        except DataError as error:
            raise DataError(error.problem.at(where)) from error


_OTHER_SIDE = {"left": "right", "right": "left"}
_SIDE = re.compile(r"(?<![\w-])(left|right)(?![\w-])", re.IGNORECASE)


def tokenise(text: str) -> list[str]:
    """Lower-case words of a caption, split as NLTK's `word_tokenize` splits one sentence (Treebank rules).

    `word_tokenize` itself would first need downloaded sentence models; captions are single sentences, and a text of
    several keeps the full stops inside it attached to their word ("runs." before the last sentence).
    """
    return [str(token) for token in _tokenizer().tokenize(text.lower())]


def with_case(words: list[str], text: str) -> list[str]:
    """The words of `tokenise(text)` as written in the text; in lower case if the text with its case splits differently.
    """
    written = [str(token) for token in _tokenizer().tokenize(text)]
    return written if [word.lower() for word in written] == words else words


def mirrored_words(words: list[str]) -> list[str]:
    """The words of a caption of the mirrored image: `left` and `right` exchanged, even where they mean no side."""
    return [_OTHER_SIDE.get(word, word) for word in words]


def mirrored_text(text: str) -> str:
    """The mirrored text of a caption, with its case (`Left` becomes `Right`); parts of longer words (`left-handed`)
    stay."""
    return _SIDE.sub(_on_the_other_side, text)


class _Tokenizer(Protocol):
    def tokenize(self, text: str) -> list[str]: ...


@cache
def _tokenizer() -> _Tokenizer:
    from nltk.tokenize import NLTKWordTokenizer  # imports all of nltk, half of the start time of a command

    made: _Tokenizer = NLTKWordTokenizer()
    return made


def _on_the_other_side(found: re.Match[str]) -> str:
    word = found[0]
    other = _OTHER_SIDE[word.lower()]
    if word.isupper():
        return other.upper()
    return other.capitalize() if word[0].isupper() else other
