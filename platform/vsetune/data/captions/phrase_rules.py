"""Phrases of a caption, derived from its dependency parse, and their form as one array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vsetune.errors import DataError

PhraseKind = Literal["object", "attribute", "relation"]
PHRASE_KINDS: tuple[PhraseKind, ...] = ("object", "attribute", "relation")

_NOUNS = ("NOUN", "PROPN")
_OF_PREPOSITIONS = ("back", "bottom", "center", "centre", "edge", "front", "middle", "side", "top")
"""Nouns that are part of a preposition when `of` follows: `in front of`, `on top of`."""


@dataclass(frozen=True)
class ParsedWord:
    """One word of a parse. part: of speech. relation: to its head, a position in the caption; its own for a root."""

    text: str
    part: str
    relation: str
    head: int


@dataclass(frozen=True)
class Phrase:
    """Positions of its words in the caption, from 0 and ascending; they need not stand side by side."""

    kind: PhraseKind
    words: tuple[int, ...]


def find_phrases(words: Sequence[ParsedWord]) -> list[Phrase]:
    """All phrases of a caption, objects before attributes before relations, each kind in the order of the caption.

    A word may be in several, as `sits` is in `sits on a bench under a tree`.
    """
    found = _Caption(words).phrases()
    return sorted(set(found), key=lambda phrase: (PHRASE_KINDS.index(phrase.kind), phrase.words))


class _Caption:
    def __init__(self, words: Sequence[ParsedWord]) -> None:
        self._words = words
        self._below: list[list[int]] = [[] for _ in words]
        for position, word in enumerate(words):
            if word.head != position:
                self._below[word.head].append(position)
        groups = {position: self._preposition(position) for position in range(len(words))}
        self._prepositions = {position: group for position, group in groups.items() if group}
        self._inside = {each for position, group in self._prepositions.items() for each in group if each != position}

    def phrases(self) -> Iterator[Phrase]:
        for position, word in enumerate(self._words):
            if position in self._inside:
                continue
            if word.part in _NOUNS and not self._names_a_noun(position):
                yield _phrase("object", self._with(position, "compound"))
            if self._qualifies(position):
                yield _phrase("attribute", self._with(position, "advmod", "npadvmod", "compound"))
            elif word.part == "VERB":
                yield from self._of_verb(position)
            elif position in self._prepositions and self._words[word.head].part != "VERB":
                yield _phrase("relation", self._prepositions[position])

    def _of_verb(self, verb: int) -> Iterator[Phrase]:
        """`holds a ball in the air`: holds, in. `sits on a bench`: sits on. `runs`: an attribute of its subject."""
        own = self._with(verb, "prt")
        groups = [self._prepositions[each] for each in self._below[verb] if each in self._prepositions]
        if self._some(verb, "dobj", "obj"):
            yield _phrase("relation", own)
            yield from (_phrase("relation", group) for group in groups)
        elif groups:
            yield from (_phrase("relation", [*own, *group]) for group in groups)
        else:
            yield _phrase("attribute", own)

    def _qualifies(self, position: int) -> bool:
        """Whether it is an adjective or number of a noun (`a black dog`, `two dogs`, `the dog is black`), or joined
        with one."""
        word = self._words[position]
        if word.relation == "conj" and word.part in ("ADJ", "NUM"):
            return word.head != position and self._qualifies(word.head)
        if word.relation in ("amod", "nummod"):
            return self._words[word.head].part in _NOUNS
        return word.relation == "acomp" and word.part == "ADJ"

    def _names_a_noun(self, position: int) -> bool:
        """Whether it is part of a noun's name, like `ice` of `ice cream`."""
        word = self._words[position]
        return word.relation == "compound" and self._words[word.head].part in _NOUNS

    def _preposition(self, position: int) -> list[int]:
        """The words of a preposition that begins here: on, out of, next to, in front of; empty if none begins here."""
        word = self._words[position]
        if word.part == "ADV":
            return [position, *following] if (following := self._next_prepositions(position)) else []
        if word.part not in ("ADP", "SCONJ") or word.relation not in ("prep", "agent", "dative"):
            return []
        if self._words[word.head].part == "ADV" or self._is_nested(position):
            return []
        place = next((each for each in self._below[position] if self._is_place(each)), None)
        if place is not None:
            return [position, place, *self._next_prepositions(place)]
        if self._some(position, "pobj", "pcomp"):
            return [position]
        return [position, *self._next_prepositions(position)]

    def _next_prepositions(self, position: int) -> list[int]:
        """The first preposition below a word, if there is one."""
        return [each for each in self._below[position] if self._words[each].relation == "prep"][:1]

    def _is_nested(self, position: int) -> bool:
        """Whether it continues another preposition, like `of` in `out of` and in `in front of`."""
        head = self._words[position].head
        is_first = self._words[head].relation in ("prep", "agent") and not self._some(head, "pobj", "pcomp")
        return is_first or self._is_place(head)

    def _is_place(self, position: int) -> bool:
        """Whether it is a place noun like `front` of `in front of`."""
        word = self._words[position]
        return (
            word.relation == "pobj" and word.text.lower() in _OF_PREPOSITIONS
            and any(self._words[each].text.lower() == "of" for each in self._next_prepositions(position))
        )

    def _with(self, position: int, *relations: str) -> list[int]:
        """The word, the words below it in one of these relations, and recursively those below them."""
        below = (each for each in self._below[position] if self._words[each].relation in relations)
        return [position, *(word for each in below for word in self._with(each, *relations))]

    def _some(self, position: int, *relations: str) -> bool:
        return any(self._words[each].relation in relations for each in self._below[position])


def _phrase(kind: PhraseKind, words: Sequence[int]) -> Phrase:
    return Phrase(kind, tuple(sorted(set(words))))


PHRASE_DTYPE = "int16"
_OPENS = {kind: -1 - number for number, kind in enumerate(PHRASE_KINDS)}
_KINDS = {opens: kind for kind, opens in _OPENS.items()}
_END = -1 - len(PHRASE_KINDS)


def encoded(captions: Sequence[Sequence[Phrase]]) -> np.ndarray:
    """(captions, longest) int16: -1 opens an object, -2 an attribute, -3 a relation, then the positions of its words,
    from 0; -4 after the end of the last phrase."""
    rows = [[each for phrase in phrases for each in (_OPENS[phrase.kind], *phrase.words)] for phrases in captions]
    array = np.full((len(rows), max([1, *map(len, rows)])), _END, PHRASE_DTYPE)  # without columns it cannot be mapped
    for row, codes in zip(array, rows, strict=True):
        row[: len(codes)] = codes
    return array


def decoded(row: np.ndarray, *, words: int) -> list[Phrase]:
    """The phrases of a caption of `words` words. DataError for a row that `encoded` cannot have written."""
    lists: list[tuple[int, list[int]]] = []
    codes = row.tolist()
    end = codes.index(_END) if _END in codes else len(codes)
    for code in codes[:end]:
        if code in _KINDS:
            lists.append((code, []))
        elif lists and 0 <= code < words:
            lists[-1][1].append(code)
        else:
            raise DataError(
                "VSE-D084", "phrases: got {found}, need positions in a caption of {words} words", found=code,
                words=words,
            )
    if any(code != _END for code in codes[end:]) or not all(positions for _, positions in lists):
        raise DataError(
            "VSE-D084", "phrases: got {found}, need positions in a caption of {words} words",
            found="a phrase without words, or one behind the end", words=words,
        )
    return [Phrase(_KINDS[code], tuple(positions)) for code, positions in lists]


def counted(codes: np.ndarray) -> tuple[int, int]:
    """(phrases, captions that have none)."""
    return int(np.isin(codes, list(_KINDS)).sum()), int((codes[:, 0] == _END).sum())
