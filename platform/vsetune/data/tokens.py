"""Captions to words, the same way everywhere: ingest, vocabulary and reader must agree."""

from __future__ import annotations

from nltk.tokenize import NLTKWordTokenizer

_TOKENIZER = NLTKWordTokenizer()


def tokenise(text: str) -> list[str]:
    """Lower-case words of a caption, split as NLTK's `word_tokenize` splits one sentence (Treebank rules).

    `word_tokenize` itself would first need downloaded sentence models; captions are single sentences, and a text of
    several keeps the full stops inside it attached to their word ("runs." before the last sentence).
    """
    return [str(token) for token in _TOKENIZER.tokenize(text.lower())]


def with_case(words: list[str], text: str) -> list[str]:
    """The words of `tokenise(text)` as they are written in the text; lower case where the text splits differently."""
    written = [str(token) for token in _TOKENIZER.tokenize(text)]
    return written if [word.lower() for word in written] == words else words
