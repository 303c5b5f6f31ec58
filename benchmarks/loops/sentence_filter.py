"""The filter of TAGS-DC's synthetic sentences, one caption and one word at a time."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from vsetune.networks.tags.generator import Finding

Word = tuple[int, ...]
"""Ids of the pieces of a word; a single id where words are not split."""


def words_of(ids: Sequence[int], continues: AbstractSet[int]) -> list[tuple[int, Word]]:
    """(place of its first id, its ids) of every word. continues: ids of pieces that belong to the word before them."""
    words: list[tuple[int, Word]] = []
    for place, piece in enumerate(ids):
        if words and piece in continues:
            start, word = words[-1]
            words[-1] = start, (*word, piece)
        else:
            words.append((place, (piece,)))
    return words


def replaced_words(sentence: Sequence[int], caption: Sequence[int], continues: AbstractSet[int]) -> set[Word]:
    """Words of a sentence with at least one id that differs from its caption, of the same length, at that position."""
    return {
        word for start, word in words_of(sentence, continues)
        if word != tuple(caption[start : start + len(word)])
    }


def judge_sentences(
    sentences: Sequence[Sequence[int]], caption: Sequence[int], others: Sequence[Sequence[int]],
    *, continues: AbstractSet[int] = frozenset(),
) -> list[Finding]:
    """The verdict on each sentence, compared with its caption.

    Without padding: ids of the sentences, which are as long as the caption; others: of all other captions of the image.
    In a false negative every replaced word occurs in the caption or in one of the others. Words are compared as a
    whole; without `continues` ids are compared. The released code does not reliably remove any of them (decision 0017).
    """
    own = tuple(caption)
    known = {word for each in (own, *others) for _, word in words_of(each, continues)}
    seen: set[tuple[int, ...]] = set()
    findings: list[Finding] = []
    for sentence in map(tuple, sentences):
        if sentence == own:
            findings.append("identical")
        elif sentence in seen:
            findings.append("duplicate")
        elif replaced_words(sentence, own, continues) <= known:
            findings.append("false_negative")
        else:
            findings.append("negative")
        seen.add(sentence)
    return findings
