"""The gallery's synthetic sentences: what is shown of them, and what a trial keeps of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import drawn_classes
import torch
from trained_here import CPU, fresh_network, open_attempt, run_through

from vsetune.board.gallery.gallery import Gallery, make_gallery
from vsetune.board.gallery.gallery_page import About, to_html
from vsetune.board.gallery.written_sentences import Word
from vsetune.config.study.evaluation_settings import GallerySpec
from vsetune.records.studies import BEST_FILE
from vsetune.training.trained import TrainedTrial, load_trained

FEW = GallerySpec(captions=1, images=4, hardest=2, written=3, sentences=2)
ABOUT = About("study/trial", "tags", "irtm", "shapes", [])


def trained(trial: Any) -> TrainedTrial:
    network, dataset = fresh_network(trial)
    return TrainedTrial(trial, dataset, network.eval(), CPU)


def test_a_gallery_of_a_network_that_writes_shows_its_sentences_and_leaves_every_random_state(
    make_trial: Any, small: Any
) -> None:
    each = trained(make_trial(network=small("tags")))
    state, weights = torch.get_rng_state(), {name: value.clone() for name, value in each.network.state_dict().items()}
    found = make_gallery(each, "validation", FEW)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, weights[name]) for name, value in each.network.state_dict().items())
    assert found.sentences is not None
    assert len(found.sentences.written) == 3
    for one in found.sentences.written:
        caption = found.caption(one.caption)
        assert found.owner[one.caption] == one.image
        assert sum(one.counts.values()) == 4  # two copies, two refills
        for sentence in one.shown:
            assert " ".join(word.was or word.text for word in sentence.words) == caption
            places = [place for place, word in enumerate(sentence.words) if word.is_filled]
            assert places
            source = [word.text for place, word in enumerate(sentence.source) if place not in places]
            assert source == [word for place, word in enumerate(caption.split()) if place not in places]
    assert any(sentence.verdict == "kept" for one in found.sentences.written for sentence in one.shown)
    # what is written for a caption depends on the seed alone
    again = make_gallery(each, "validation", FEW.model_copy(update={"captions": 3, "top": 2}))
    assert again.sentences is not None
    assert again.sentences.written == found.sentences.written
    other = make_gallery(each, "validation", FEW.model_copy(update={"seed": 1}))
    assert other.sentences is not None
    assert other.sentences.written != found.sentences.written
    assert any("has no phrases" in note for note in found.sentences.notes)


def test_a_trial_trained_by_the_retrieval_loss_alone_says_why_it_writes_nothing_and_others_have_no_such_part(
    make_trial: Any, small: Any
) -> None:
    bare = make_gallery(trained(make_trial(network=small("tags") | {"mlm_weight": 0})), "validation", FEW)
    assert bare.sentences is not None
    assert bare.sentences.written == []
    page = to_html(bare, ABOUT)
    assert "It writes no sentences: it was trained without the head that guesses masked words" in page
    other = make_gallery(trained(make_trial()), "validation", FEW)
    assert other.sentences is None
    assert "Sentences it writes" not in to_html(other, ABOUT)


def test_written_words_are_escaped_on_the_page(make_trial: Any, small: Any) -> None:
    found = make_gallery(trained(make_trial(network=small("tags"))), "validation", FEW)
    nasty = Word("<script>a", joins=False, was='"<script>b', is_filled=True)
    page = to_html(_with_every_word(found, nasty), ABOUT)
    assert "<script" not in page
    assert all(f"&lt;script&gt;{letter}" in page for letter in "ab")


def test_everything_drawn_has_a_rule_in_the_style_of_the_page(make_trial: Any, small: Any) -> None:
    found = make_gallery(trained(make_trial(network=small("tags"))), "validation", FEW)
    assert drawn_classes.without_rule(to_html(found, ABOUT)) == set()


def _with_every_word(gallery: Gallery, word: Word) -> Gallery:
    assert gallery.sentences is not None
    written = [
        replace(each, shown=[replace(one, words=[word], source=[word]) for one in each.shown])
        for each in gallery.sentences.written
    ]
    return replace(gallery, sentences=replace(gallery.sentences, written=written))


def test_a_training_goes_on_bit_for_bit_whether_or_not_a_gallery_was_made_in_between(
    make_trial: Any, small: Any, tmp_path: Path
) -> None:
    trial = make_trial(network=small("tags"), epochs=1.0, batch_size=21, validate_every_steps=1)
    weights = []
    for name in ("with", "without"):
        attempt = open_attempt(trial, tmp_path / name)
        attempt.advance()
        if name == "with":
            best = load_trained(
                trial, tmp_path / name / BEST_FILE, device=CPU, data_fingerprint=None, where="trial gallery"
            )
            assert make_gallery(best, "validation", FEW).sentences is not None
        run_through(attempt).finish()
        weights.append((attempt.best_path.read_bytes(), [point.m_recall for point in attempt.history]))
    assert weights[0] == weights[1]
