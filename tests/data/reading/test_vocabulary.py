from __future__ import annotations

import pytest
from refusals import refused

from vsetune.data.stored.vocabulary import END, MASK, PAD, SPECIAL_WORDS, START, UNKNOWN, Vocabulary, tokenise


def test_words_are_lower_case_and_split_by_treebank_rules():
    assert tokenise("A dog's ball, isn't it (red)?") == [
        "a", "dog", "'s", "ball", ",", "is", "n't", "it", "(", "red", ")", "?",
    ]


def test_special_ids_are_fixed():
    assert (PAD, START, END, UNKNOWN, MASK) == (0, 1, 2, 3, 4)
    assert Vocabulary.build([], min_count=1).words == SPECIAL_WORDS


def test_words_are_kept_from_min_count_on():
    captions = [["dog", "runs"], ["dog", "sits"], ["dog", "runs"]]
    assert Vocabulary.build(captions, min_count=2).words[5:] == ("dog", "runs")


def test_the_order_does_not_depend_on_the_order_of_captions():
    captions = [["b", "c"], ["a", "c"], ["d"]]
    assert Vocabulary.build(captions, min_count=1) == Vocabulary.build(captions[::-1], min_count=1)


def test_captions_are_encoded_between_start_and_end_with_unknown_words_marked():
    vocabulary = Vocabulary.build([["dog"]], min_count=1)
    assert vocabulary.encode(["dog", "cat", "<pad>"]) == [START, 5, UNKNOWN, UNKNOWN, END]


def test_special_words_in_captions_get_no_second_id():
    assert Vocabulary.build([["<mask>", "<pad>"]], min_count=1).words == SPECIAL_WORDS


def test_json_brings_the_same_vocabulary_back():
    vocabulary = Vocabulary.build([["Müller", "run"]], min_count=1)
    assert Vocabulary.from_json(vocabulary.to_json()) == vocabulary


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "VSE-D010"), ("[]", "VSE-D033"), ('{"words": "abc"}', "VSE-D033"),
        ('{"words": [1]}', "VSE-D033"), ('{"words": ["dog"]}', "VSE-D032"),
        ('{"words": ["<pad>", "<start>", "<end>", "<unknown>", "<mask>", "a", "a"]}', "VSE-D032"),
    ],
)
def test_another_json_is_refused(text, message):
    with refused(message):
        Vocabulary.from_json(text)
