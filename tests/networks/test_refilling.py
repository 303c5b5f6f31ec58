"""Synthetic sentences: how masked places are filled in, which sentences are negatives, and which of them are kept."""

from __future__ import annotations

import pytest
import torch

from vsetune.networks.tags.generator import best_sentences, judge_sentences, refill, replaced_words, words_of

CAPTION = [1, 10, 11, 12, 13, 2]  # start a dog runs fast end
OTHERS = [[1, 20, 21, 2], [1, 10, 30, 2]]


def test_masked_places_are_drawn_with_the_temperature_and_no_other_place_changes() -> None:
    tokens, is_chosen = torch.tensor([[1, 4, 7, 2], [1, 5, 4, 2]]), torch.zeros(2, 4, dtype=torch.bool)
    is_chosen[0, 1] = is_chosen[1, 2] = True
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 60.0]])
    sentences = refill(
        logits, tokens, is_chosen, temperature=1.5, refills=30_000, generator=torch.Generator().manual_seed(0)
    )
    assert sentences.shape == (30_000, 2, 4)
    assert torch.equal(sentences[:, ~is_chosen], tokens[~is_chosen].expand(30_000, 6))
    shares = sentences[:, 0, 1].bincount(minlength=3) / 30_000
    assert shares.tolist() == pytest.approx([0.562742, 0.288921, 0.148337], abs=0.01)
    assert (sentences[:, 1, 2] == 2).all()


def test_the_probabilities_of_a_refill_are_those_of_the_worked_example() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64)
    assert (logits / 1.5).softmax(dim=0).tolist() == pytest.approx([0.562742, 0.288921, 0.148337], abs=1e-6)


def test_the_generator_alone_decides_what_is_drawn() -> None:
    logits, tokens, is_chosen = torch.zeros(3, 50), torch.full((1, 3), 4), torch.ones(1, 3, dtype=torch.bool)
    found = [
        refill(logits, tokens, is_chosen, temperature=1.0, refills=4, generator=torch.Generator().manual_seed(seed))
        for seed in (0, 0, 1)
    ]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize(("sentence", "finding"), [
    (CAPTION, "identical"),
    ([1, 10, 99, 12, 13, 2], "negative"),
    ([1, 10, 21, 12, 13, 2], "false_negative"),  # another caption has the word
    ([1, 10, 21, 12, 30, 2], "false_negative"),  # both words are in captions, though not in the same
    ([1, 10, 21, 12, 99, 2], "negative"),  # one of two words is new
    ([1, 10, 13, 12, 11, 2], "false_negative"),  # words of the caption itself at other places
])
def test_a_sentence_is_a_negative_when_a_replaced_word_is_in_no_caption_of_the_image(
    sentence: list[int], finding: str
) -> None:
    assert judge_sentences([sentence], CAPTION, OTHERS) == [finding]


def test_a_sentence_that_was_there_before_is_a_duplicate() -> None:
    new, other = [1, 10, 99, 12, 13, 2], [1, 10, 98, 12, 13, 2]
    assert judge_sentences([new, other, new], CAPTION, []) == ["negative", "negative", "duplicate"]


def test_whole_words_are_compared_where_words_are_cut_into_pieces() -> None:
    continues = {50, 51}
    caption, others = [1, 10, 11, 50, 2], [[1, 12, 51, 2], [1, 13, 2]]
    assert words_of(caption, continues) == [(0, (1,)), (1, (10,)), (2, (11, 50)), (4, (2,))]
    # its second piece changed: the word is 11 51, of which the captions have only the pieces
    assert replaced_words([1, 10, 11, 51, 2], caption, continues) == {(11, 51)}
    sentences = [[1, 10, 11, 51, 2], [1, 10, 12, 51, 2], [1, 13, 11, 50, 2]]
    found = judge_sentences(sentences, caption, others, continues=continues)
    assert found == ["negative", "false_negative", "false_negative"]
    assert judge_sentences(sentences[:1], caption, others) == ["false_negative"]  # by pieces


def test_the_best_sentences_of_every_caption_are_kept_highest_first() -> None:
    scores = torch.tensor([0.85, 0.60, 0.95, 0.1, 0.72, 0.85])
    owners = torch.tensor([4, 4, 4, 1, 4, 4])
    assert best_sentences(scores, owners, 2).tolist() == [3, 2, 0]
    assert best_sentences(scores, owners, 9).tolist() == [3, 2, 0, 5, 4, 1]
    assert best_sentences(scores[:0], owners[:0], 2).tolist() == []


def test_every_sentence_that_is_kept_scores_at_least_as_high_as_every_other_one_of_its_caption() -> None:
    generator = torch.Generator().manual_seed(0)
    scores, owners = torch.rand(200, generator=generator), torch.randint(7, (200,), generator=generator)
    kept = set(best_sentences(scores, owners, 11).tolist())
    for owner in range(7):
        mine = [row for row in range(200) if owners[row] == owner]
        inside = [float(scores[row]) for row in mine if row in kept]
        outside = [float(scores[row]) for row in mine if row not in kept]
        assert len(inside) == 11
        assert min(inside) >= max(outside)
