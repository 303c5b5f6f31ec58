"""Word pieces of a tiny BERT, and the words that they belong to."""

from __future__ import annotations

import numpy as np
import pytest

from vsetune.config.sources.trial_inputs import TextModel
from vsetune.data.captions.word_pieces import ids_of_phrases, piece_words, word_pieces, words_of_ids

WORDS = ["a", "dog", "run", "##s", "left", "-", "handed", "don", "'", "t"]


@pytest.fixture(scope="session")
def model(save_bert, tmp_path_factory) -> TextModel:
    return TextModel(save_bert(tmp_path_factory.mktemp("piece-words") / "bert", words=WORDS))


def test_every_piece_knows_its_word(tiny, model):
    captions = ["A dog runs", "a left-handed dog", "a cat", "dog " * 40, "", "dogs don't"]
    dataset = tiny([captions]).write()
    found = piece_words(dataset, "train", model)
    assert found.shape == word_pieces(dataset, "train", model).shape == (6, 16)
    assert [row[row != -1].tolist() for row in found] == [
        [0, 1, 2, 2], [0, 1, 1, 1, 2], [0, 1], list(range(14)), [], [-2] * 5,  # do, n't: our words, not BERT's
    ]
    assert (found[:, 0] == -1).all()
    assert found[3, 15] == -1
    assert len(list(tiny().folder.glob("piece-words-1-train-bert-*.npy"))) == 1


def places(found: np.ndarray) -> list[list[int]]:
    return [np.flatnonzero(row).tolist() for row in found if row.any()]


def test_a_phrase_takes_all_pieces_of_its_words():
    words = np.array([[-1, 0, 1, 2, 2, -1, -1], [-1, 0, 0, 1, -1, -1, -1], [-1, -2, -2, -2, -2, -2, -1]], np.int16)
    phrases = [[(2,), (0, 2), (3,)], [(5, 6)], [(0,), (1, 2)]]
    found = ids_of_phrases(phrases, words)
    assert found.shape == (3, 5, 7)
    assert places(found[0]) == [[3, 4], [1, 3, 4]]  # word 3 was cut off
    assert places(found[1]) == [[1, 2], [3]]  # nothing left: every word alone
    assert places(found[2]) == [[1], [2], [3], [4], [5]]


def test_captions_as_ids_of_the_vocabulary_have_one_id_for_each_word():
    words = words_of_ids(np.array([5, 3, 2]))
    assert words.tolist() == [[-1, 0, 1, 2, -1], [-1, 0, -1, -1, -1], [-1] * 5]
    found = ids_of_phrases([[(0, 2), (1,)], [], []], words)
    assert [places(each) for each in found] == [[[1, 3], [2]], [[1]], []]
    assert ids_of_phrases([[]], words_of_ids(np.array([2]))).tolist() == [[[False, False]]]
