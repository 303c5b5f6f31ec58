"""What TAGS shows of its sentences: the same as it trains on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from plain_tags import drawn, make

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs
from vsetune.networks.network_base import TrainingItems
from vsetune.networks.tags.generator import mask_phrases
from vsetune.networks.tags.network import Tags

ALL = {"mlm_weight": 0.7, "istm_weight": 1.3, "wod_weight": 0.9, "woc_weight": 1.1}
IDS = [1, 7, 9, 3, 8, 2]
"""The fourth is unknown, which is never masked."""


def caption(*others: list[int]) -> CaptionInputs:
    siblings = torch.tensor([others]) if others else None
    return CaptionInputs(torch.tensor([IDS]), torch.tensor([len(IDS)]), siblings=siblings)


def first_image(network: Tags) -> Encoded:
    return network.encode_images(drawn()[0])[:1]


def made(**settings: Any) -> Tags:
    return make(**ALL | {"masked_copies": 8, "refills": 4, **settings}).eval()


def test_the_kept_sentences_are_those_that_train_and_all_others_are_there_with_the_reason() -> None:
    network, words = made(), caption([1, 7, 9, 3, 12, 2])
    torch.manual_seed(3)
    found = network.sentence_writing().write(first_image(network), words)
    assert found is not None
    torch.manual_seed(3)
    one = torch.zeros(1, dtype=torch.int64)
    items = TrainingItems(first_image(network), network.encode_captions(words), words, one, one[None] > 0)
    copies = mask_phrases(words, network.ids, rate=0.15, copies=8)
    logits = network.word_logits(
        items.images, network.encode_captions(copies.captions), one[copies.owners], copies.is_chosen
    )
    trained = network.hardest_sentences(items, copies, logits).tokens.tolist()
    rows, scores = found.tokens.tolist(), found.scores.tolist()

    def of(verdict: str) -> list[int]:
        return [place for place, each in enumerate(found.verdicts) if each == verdict]

    assert sorted(rows[place] for place in of("kept")) == sorted(trained)
    assert len(of("kept")) == 3
    assert min(scores[place] for place in of("kept")) >= max(scores[place] for place in of("not_among_best"))
    assert {tuple(rows[place]) for place in of("identical")} <= {tuple(IDS)}
    earlier = [rows[:place] for place in of("duplicate")]
    assert all(rows[place] in before for place, before in zip(of("duplicate"), earlier, strict=True))
    known = {*IDS, 12}
    assert of("false_negative")
    assert all({word for word in rows[place] if word not in known} == set() for place in of("false_negative"))
    # what is written stands in the filled places alone, of which the copy says what was read there
    own = torch.tensor(IDS).expand_as(found.tokens)
    assert torch.equal(found.tokens[~found.is_filled], own[~found.is_filled])
    assert torch.equal(found.masked[~found.is_filled], own[~found.is_filled])
    assert (found.masked == 4).any()


def test_what_a_training_had_no_head_for_is_not_shown_but_named() -> None:
    bare = made(mlm_weight=0, istm_weight=0, wod_weight=0, woc_weight=0)
    writing = bare.sentence_writing()
    assert writing.write(first_image(bare), caption()) is None
    assert [line.split(":")[0] for line in writing.lacks] == ["It writes no sentences"]
    assert made().sentence_writing().lacks == []


def test_a_caption_of_unknown_words_gives_no_sentences() -> None:
    network = made()
    words = replace(caption(), tokens=torch.tensor([[1, 3, 3, 3, 3, 2]]))
    found = network.sentence_writing().write(first_image(network), words)
    assert found is not None
    assert found.verdicts == []
    assert found.tokens.shape == (0, 6)
