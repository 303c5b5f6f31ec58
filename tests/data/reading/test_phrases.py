from __future__ import annotations

import json
import logging

import numpy as np
import pytest
from refusals import fits, refused

from vsetune.data.captions.parses import PARSES_FILE, caption_phrases, parse_dataset, phrases_name
from vsetune.data.captions.phrase_rules import Phrase, counted, decoded, encoded
from vsetune.data.looking.verify import verify
from vsetune.data.progress import SilentProgress
from vsetune.home.hashes import sha256_hex


def parse(dataset, *, phrases=True):
    return parse_dataset(dataset.path, "chain", phrases=phrases, progress=SilentProgress())


def test_index_lists_are_read_back_as_they_were_written():
    captions = [
        [Phrase("object", (4, 5)), Phrase("attribute", (3,)), Phrase("relation", (0, 6))], [],
        [Phrase("attribute", (2,)), Phrase("attribute", (2, 6))],
    ]
    codes = encoded(captions)
    assert codes.tolist() == [[-1, 4, 5, -2, 3, -3, 0, 6], [-4] * 8, [-2, 2, -2, 2, 6, -4, -4, -4]]
    assert [decoded(row, words=7) for row in codes] == captions
    assert counted(codes) == (5, 1)
    assert encoded([[], []]).shape == (2, 1)


@pytest.mark.parametrize("row", [[0, -4], [-1, 7], [-1, -2, 0], [-1, 0, -4, 3], [-1, -4], [-5, 0]])
def test_rows_that_nobody_wrote_are_refused(row):
    with refused("VSE-D084"):
        decoded(np.array(row, np.int16), words=7)


def test_each_caption_has_its_phrases_or_single_words(tiny, chain, monkeypatch):
    found = [[Phrase("object", (1,)), Phrase("relation", (0, 2))], []]
    monkeypatch.setattr(chain, "phrases", lambda captions: (found[row] for row, _ in enumerate(captions)))
    dataset = tiny([["two dogs run"], ["a cat"]]).write()
    info = parse(dataset).splits["train"].phrases
    assert (info.phrases, info.without) == (2, 1)
    phrases = caption_phrases(dataset, "train")
    assert [phrases.of(caption, words=3) for caption in (0, 1)] == found
    assert phrases_name(dataset) == "chain 1"


@pytest.mark.parametrize("parsed", [False, True])
def test_a_data_set_without_phrases_gives_single_words_and_says_so(tiny, chain, caplog, parsed):
    dataset = tiny([["a dog"]]).write()
    if parsed:
        parse(dataset, phrases=False)
    with caplog.at_level(logging.WARNING):
        phrases = caption_phrases(dataset, "train")
    assert phrases.of(0, words=2) == []
    assert phrases_name(dataset) == "single words"
    assert len(caplog.messages) == 1


def test_phrases_of_other_captions_are_refused(tiny, chain):
    parse(tiny([["a dog"]]).write())
    changed = tiny([["a dog runs"]]).write()
    with refused("VSE-D078", split="train"):
        caption_phrases(changed, "train")


def test_phrases_by_another_version_than_the_parses_are_refused(tiny, chain):
    dataset = tiny([["a dog"]]).write()
    parse(dataset, phrases=False)
    chain.version = "2"
    with refused("VSE-D079", pipeline="chain", version="1", installed="2"):
        parse(dataset)


def test_verify_and_reading_tell_of_phrases_that_are_damaged_or_gone(tiny, chain):
    dataset = tiny([["a dog"]]).write()
    file = tiny().folder / parse(dataset).splits["train"].phrases.file
    assert verify(dataset.path) == []
    kept = file.read_bytes()
    beyond = kept[:-2] + np.array([2], np.int16).tobytes()
    file.write_bytes(beyond)
    assert any(fits(each, "VSE-D030", file=file) for each in verify(dataset.path))
    listed = tiny().folder / PARSES_FILE
    listed.write_text(listed.read_text().replace(sha256_hex(kept), sha256_hex(beyond)))
    (problem,) = verify(dataset.path)
    assert fits(problem, "VSE-D084", found=2, words=2)
    assert problem.startswith(f"{file}: ")
    with refused("VSE-D083", folder=dataset.path, caption=0):
        caption_phrases(dataset, "train").of(0, words=2)
    file.unlink()
    assert any(fits(each, "VSE-D077", where=file) for each in verify(dataset.path))
    with refused("VSE-D077", where=file):
        caption_phrases(dataset, "train")


def test_a_list_that_names_phrases_elsewhere_is_refused(tiny, chain):
    dataset = tiny([["a dog"]]).write()
    parse(dataset)
    listed = tiny().folder / PARSES_FILE
    plain = json.loads(listed.read_text())
    plain["splits"]["train"]["phrases"]["file"] = "../phrases-train.npy"
    listed.write_text(json.dumps(plain))
    with refused("VSE-D076", where=listed):
        caption_phrases(dataset, "train")
