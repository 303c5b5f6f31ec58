"""The gallery's synthetic sentences: what is shown of them, corrections step by step, and what a trial keeps of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import drawn_classes
import pytest
import torch
from trained_here import CPU, fresh_network, open_attempt, run_through

from vsetune.config.study.evaluation_settings import GallerySpec
from vsetune.data.looking.show import Picture, ReadableIds
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs
from vsetune.networks.sentence_writing import SentenceWriting, WordFindings, WrittenSentences
from vsetune.records.studies import BEST_FILE
from vsetune.report.gallery.gallery import Gallery, make_gallery
from vsetune.report.gallery.gallery_page import About, to_html
from vsetune.report.gallery.written_sentences import CaptionLook, Word
from vsetune.training.trained import TrainedTrial, load_trained

FEW = GallerySpec(captions=1, images=4, hardest=2, written=3, sentences=2, corrected=3)
ABOUT = About("study/trial", "tags", "irtm", "shapes", [])


def trained(trial: Any) -> TrainedTrial:
    network, dataset = fresh_network(trial)
    return TrainedTrial(trial, dataset, network.eval(), CPU)


def text(words: Sequence[Word]) -> str:
    return " ".join(word.text for word in words)


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
        kept = [sentence for sentence in one.shown if sentence.verdict == "kept"]
        if kept:
            assert one.examined is not None
            assert (text(one.examined.words), one.examined.score) == (
                text(kept[0].words), pytest.approx(kept[0].score, abs=1e-6)
            )
    assert any(sentence.verdict == "kept" for one in found.sentences.written for sentence in one.shown)
    assert [each.image for each in found.sentences.corrections]
    # what is written for a caption depends on the seed alone
    again = make_gallery(each, "validation", FEW.model_copy(update={"captions": 3, "corrected": 0, "top": 2}))
    assert again.sentences is not None
    assert again.sentences.written == found.sentences.written
    other = make_gallery(each, "validation", FEW.model_copy(update={"seed": 1}))
    assert other.sentences is not None
    assert other.sentences.written != found.sentences.written
    assert any("has no phrases" in note for note in found.sentences.notes)


class Scripted(SentenceWriting):
    """Ids above 10 are wrong, the higher the more, to 12 not found to be; the word it would write is the id less 10."""

    about, lacks = "", []

    def __init__(self, *, finds: bool = True, mends: bool = True) -> None:
        self._finds, self._mends = finds, mends

    def write(self, image: Encoded, caption: CaptionInputs) -> WrittenSentences | None:
        return None

    def judge_words(self, image: Encoded, sentences: CaptionInputs) -> WordFindings:
        ids = sentences.tokens
        is_judged = ids > 4
        is_wrong = ids > 10
        likely = torch.where(is_wrong, 7 / ids, 1.0)
        likely[~is_wrong] = 0.9
        mended = torch.where(is_wrong, ids - 10, ids)
        found = WordFindings(1 - is_wrong.sum(dim=1) / 10, is_judged, likely if self._finds else None)
        return replace(found, mended=mended, certainty=1 - likely, present=likely) if self._mends else found


class Named(ReadableIds):
    def __init__(self) -> None:
        pass

    are_words = True

    def text(self, number: int) -> tuple[str, bool]:
        return f"w{number}", False


def look(*ids: int, **heads: bool) -> CaptionLook:
    """At a caption whose words are written W and their id."""
    tokens = torch.tensor([[1, *ids, 2]])
    picture = Picture(0, "image", 6, ["", ""], [["other"], [f"W{number}" for number in ids]], None, None)
    caption = CaptionInputs(tokens, torch.tensor([tokens.shape[1]]))
    return CaptionLook(Scripted(**heads), Named(), Encoded(torch.zeros(1, 1, 2)), picture, 7, caption)


@pytest.mark.parametrize("finds", [True, False], ids=["by both heads", "by the one that mends"])
def test_a_wrong_caption_is_corrected_word_by_word_the_surest_first(finds: bool) -> None:
    found = look(16, 8, 18, 3, finds=finds).corrected()
    assert found is not None
    assert (found.finds_any, found.is_cut) == (True, False)
    steps = found.read
    assert [text(words) for words, _ in steps] == ["W16 W8 W18 W3", "W16 W8 w8 W3", "w6 W8 w8 W3"]
    assert [score for _, score in steps] == pytest.approx([0.8, 0.9, 1.0])
    first, _, last = (words for words, _ in steps)
    assert [word.mended for word in first] == ["w6", "W8", "w8", None]  # an unknown word is not judged
    assert [word.was for word in last] == ["W16", None, "W18", None]
    assert first[2].doubt == (pytest.approx(1 - 7 / 18) if finds else None)


def test_a_long_caption_is_cut_and_where_no_word_is_found_wrong_the_likeliest_are_corrected_all_the_same() -> None:
    right, long, unsure = look(7, 8).corrected(), look(*range(11, 31)).corrected(), look(7, 11, *[12] * 3).corrected()
    assert right is not None
    assert ([text(words) for words, _ in right.read], right.is_cut) == (["W7 W8"], False)
    assert long is not None
    assert (len(long.read), long.finds_any, long.is_cut) == (13, True, True)
    assert unsure is not None
    assert [text(words) for words, _ in unsure.read][1:] == ["W7 W11 w2 W12 W12", "W7 W11 w2 w2 W12", "W7 W11 w2 w2 w2"]
    assert (unsure.finds_any, unsure.is_cut) == (False, True)
    assert look(16, 8, mends=False).corrected() is None


def test_a_trial_trained_by_the_retrieval_loss_alone_says_why_it_writes_nothing_and_others_have_no_such_part(
    make_trial: Any, small: Any
) -> None:
    bare = make_gallery(trained(make_trial(network=small("tags") | {"mlm_weight": 0})), "validation", FEW)
    assert bare.sentences is not None
    assert (bare.sentences.written, bare.sentences.corrections) == ([], [])
    page = to_html(bare, ABOUT)
    assert "It writes no sentences: it was trained without the head that guesses masked words" in page
    assert "Wrong captions corrected" not in page
    other = make_gallery(trained(make_trial()), "validation", FEW)
    assert other.sentences is None
    assert "Sentences it writes" not in to_html(other, ABOUT)


def test_written_words_are_escaped_on_the_page(make_trial: Any, small: Any) -> None:
    found = make_gallery(trained(make_trial(network=small("tags"))), "validation", FEW)
    nasty = Word("<script>a", was='"<script>b', is_filled=True, doubt=0.7, mended="<script>c", certainty=0.5)
    page = to_html(_with_every_word(found, nasty), ABOUT)
    assert "<script" not in page
    assert all(f"&lt;script&gt;{letter}" in page for letter in "abc")


def test_everything_drawn_has_a_rule_in_the_style_of_the_page(make_trial: Any, small: Any) -> None:
    found = make_gallery(trained(make_trial(network=small("tags"))), "validation", FEW)
    assert drawn_classes.without_rule(to_html(found, ABOUT)) == set()


def _with_every_word(gallery: Gallery, word: Word) -> Gallery:
    assert gallery.sentences is not None
    written = [
        replace(
            each, shown=[replace(one, words=[word], source=[word]) for one in each.shown],
            examined=each.examined and replace(each.examined, words=[word], corrected=[word], corrected_score=0.5),
        )
        for each in gallery.sentences.written
    ]
    corrections = [
        replace(each, steps=replace(each.steps, read=[([word], 0.5)])) for each in gallery.sentences.corrections
    ]
    return replace(gallery, sentences=replace(gallery.sentences, written=written, corrections=corrections))


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
