"""Phrases of captions in training batches, over ids of the vocabulary and over word pieces."""

from __future__ import annotations

import io
import logging

import pytest
import torch
from PIL import Image

from vsetune.config.sources.trial_inputs import NetworkReads, PixelInput, TextModel
from vsetune.data.batches.reader import evaluation_batches, training_batches
from vsetune.data.captions.parses import parse_dataset
from vsetune.data.captions.phrase_rules import Phrase
from vsetune.data.progress import SilentProgress

OPTIONS = {"batch_size": 3, "batch_unit": "pairs", "seed": 1, "epoch": 0, "shuffle_pairs": 8}
WORDS = ["a", "dog", "run", "##s", "le", "##ft", "right", "of", "bike"]
CAPTIONS = [["a dog runs", "left of a bike"], ["right"], ["dogs", "a dog runs left"]]
PHRASES = [
    [Phrase("object", (1,)), Phrase("relation", (0, 2))], [Phrase("attribute", (0,)), Phrase("object", (2, 3))], [], [],
    [Phrase("relation", (2, 3))],
]
AS_WORDS = [[[2], [1, 3]], [[1], [3, 4]], [[1]], [[1]], [[3, 4]]]
AS_PIECES = [[[2], [1, 3, 4]], [[1, 2], [4, 5]], [[1]], [[1, 2]], [[3, 4, 5, 6]]]
MIRRORED = [[[2], [1, 3, 4]], [[1], [3, 4]], [[1, 2]], [[1, 2]], [[3, 4, 5]]]


@pytest.fixture(scope="session")
def model(save_bert, tmp_path_factory) -> TextModel:
    return TextModel(save_bert(tmp_path_factory.mktemp("phrase-pieces") / "bert", words=WORDS))


@pytest.fixture
def phrased(tiny, chain, monkeypatch):
    monkeypatch.setattr(chain, "phrases", lambda captions: (PHRASES[row] for row, _ in enumerate(captions)))
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, format="PNG")
    dataset = tiny(CAPTIONS, photograph=lambda index: buffer.getvalue()).write()
    parse_dataset(dataset.path, "chain", phrases=True, progress=SilentProgress())
    return dataset


def found(dataset, reads: NetworkReads, **options) -> dict[int, list[list[int]]]:
    """Caption id -> positions of each phrase, over all batches of an epoch."""
    rows = {}
    for batch in training_batches(dataset, "train", **OPTIONS | options, reads=reads):
        assert batch.captions.phrases.dtype == torch.bool
        assert (batch.captions.phrases.shape[0], batch.captions.phrases.shape[2]) == batch.captions.tokens.shape
        for caption, phrases in zip(batch.caption_ids.tolist(), batch.to("cpu").captions.phrases, strict=True):
            rows[caption] = [phrase.nonzero().flatten().tolist() for phrase in phrases if phrase.any()]
    return rows


@pytest.mark.parametrize("unit", ["pairs", "images"])
def test_batches_bring_the_places_of_each_phrase(phrased, unit):
    assert found(phrased, NetworkReads(phrases=True), batch_unit=unit) == dict(enumerate(AS_WORDS))


def test_a_phrase_of_word_pieces_has_all_pieces_of_its_words_also_of_mirrored_images(phrased, model):
    assert found(phrased, NetworkReads(phrases=True, word_pieces=model)) == dict(enumerate(AS_PIECES))
    for flip, expected in ((1.0, MIRRORED), (0.0, AS_PIECES)):
        pixels = PixelInput(size=4, flip=flip, swaps_sides=True)
        reads = NetworkReads(phrases=True, word_pieces=model, pixels=pixels)
        assert found(phrased, reads) == dict(enumerate(expected))


def test_phrases_and_siblings_come_in_order_too_where_something_is_masked_to_look_at(phrased):
    reads = NetworkReads(phrases=True, siblings=True)
    (batch,) = evaluation_batches(phrased, "train", batch_size=3, reads=reads, for_masking=True)
    captions = batch.captions
    assert [
        [phrase.nonzero().flatten().tolist() for phrase in phrases if phrase.any()] for phrases in captions.phrases
    ] == AS_WORDS
    assert torch.equal(captions.siblings[0, 0, : captions.lengths[1]], captions.tokens[1, : captions.lengths[1]])
    (plain,) = evaluation_batches(phrased, "train", batch_size=3, reads=reads)
    assert (plain.captions.phrases, plain.captions.siblings) == (None, None)


def test_nobody_else_gets_phrases_and_validation_needs_none(phrased, tiny, caplog):
    assert all(batch.captions.phrases is None for batch in training_batches(phrased, "train", **OPTIONS))
    bare = tiny(CAPTIONS).write()
    (tiny().folder / "parses.json").unlink()
    wanted = NetworkReads(phrases=True)
    with caplog.at_level(logging.WARNING):
        in_order = evaluation_batches(bare, "train", batch_size=2, reads=wanted)
        assert all(batch.captions.phrases is None for batch in in_order)
        assert caplog.messages == []
        assert all(batch.captions.phrases is None for batch in training_batches(bare, "train", **OPTIONS, reads=wanted))
    assert caplog.messages == [
        f"{bare.path}: has no phrases of its captions, single words are masked instead; add them: vsetune data parse "
        f"{bare.path} --phrases"
    ]
