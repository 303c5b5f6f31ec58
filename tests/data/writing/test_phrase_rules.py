"""Phrases of parses written by hand; of real ones in `test_spacy_parser.py`."""

from __future__ import annotations

import pytest

from vsetune.data.captions.phrase_rules import ParsedWord, find_phrases


def phrases(parse: str) -> list[str]:
    """parse: word/PART/relation/head, separated by spaces."""
    words = [ParsedWord(text, part, relation, int(head)) for text, part, relation, head in (
        each.split("/") for each in parse.split()
    )]
    return [f"{phrase.kind}: {' '.join(words[word].text for word in phrase.words)}" for phrase in find_phrases(words)]


@pytest.mark.parametrize(
    ("parse", "expected"),
    [
        ("", []),
        ("a/DET/det/1 dog/NOUN/ROOT/1", ["object: dog"]),
        ("it/PRON/nsubj/1 is/AUX/ROOT/1 ./PUNCT/punct/1", []),
        ("ice/NOUN/compound/1 cream/NOUN/ROOT/1", ["object: ice cream"]),
        (  # a verb with an object and with a preposition
            "man/NOUN/nsubj/1 holds/VERB/ROOT/1 ball/NOUN/dobj/1 in/ADP/prep/1 air/NOUN/pobj/3",
            ["object: man", "object: ball", "object: air", "relation: holds", "relation: in"],
        ),
        (  # a verb stands in one relation with each of its prepositions
            "dog/NOUN/nsubj/1 sits/VERB/ROOT/1 on/ADP/prep/1 grass/NOUN/pobj/2 by/ADP/prep/1 tree/NOUN/pobj/4",
            ["object: dog", "object: grass", "object: tree", "relation: sits on", "relation: sits by"],
        ),
        (  # predicate, and what is joined with it
            "dog/NOUN/nsubj/1 is/AUX/ROOT/1 wet/ADJ/acomp/1 and/CCONJ/cc/2 happy/ADJ/conj/2",
            ["object: dog", "attribute: wet", "attribute: happy"],
        ),
        (  # without `of` a top is a thing
            "cup/NOUN/ROOT/0 on/ADP/prep/0 top/NOUN/pobj/1", ["object: cup", "object: top", "relation: on"],
        ),
        (
            "cup/NOUN/ROOT/0 on/ADP/prep/0 top/NOUN/pobj/1 of/ADP/prep/2 box/NOUN/pobj/3",
            ["object: cup", "object: box", "relation: on top of"],
        ),
    ],
)
def test_phrases_by_hand(parse: str, expected: list[str]) -> None:
    assert phrases(parse) == expected
