"""Captions to words, the same way everywhere: ingest, vocabulary and reader must agree."""

from __future__ import annotations

import re
from functools import cache
from typing import Protocol

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
