"""Captions as the word pieces of a tiny BERT."""

from __future__ import annotations

import json
import logging
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from refusals import refused

from vsetune.config.sources.trial_inputs import NetworkReads, PixelInput, TextModel
from vsetune.data.batches.reader import evaluation_batches, training_batches
from vsetune.data.captions import word_pieces as module
from vsetune.data.captions.word_pieces import WordPieces, word_pieces, word_pieces_name
from vsetune.data.looking.show import ReadableIds
from vsetune.errors import ConfigError

OPTIONS = {"batch_size": 4, "batch_unit": "pairs", "seed": 1, "epoch": 0, "shuffle_pairs": 8}
WORDS = ["a", "dog", "run", "##s", "left", "right", "of", "bike", "-", "handed"]
PAD, UNKNOWN, CLS, SEP = 0, 1, 2, 3
IDS = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}


@pytest.fixture(scope="session")
def model(save_bert, tmp_path_factory) -> TextModel:
    return TextModel(save_bert(tmp_path_factory.mktemp("pieces") / "bert", words=WORDS))


def pieces(*words: str) -> list[int]:
    return [CLS, *(IDS[word] for word in words), SEP]


def test_ids_are_cls_pieces_sep(model):
    found = WordPieces(model).encode(["A dog runs", "", "a cat"])
    assert found == [pieces("a", "dog", "run", "##s"), [CLS, SEP], pieces("a", "[UNK]")]


def test_a_caption_beyond_the_limit_of_the_model_is_cut_before_sep(model):
    (found,) = WordPieces(model).encode(["dog " * 40])
    assert WordPieces(model).limit == len(found) == 16
    assert found == [CLS, *[IDS["dog"]] * 14, SEP]


def test_a_literal_padding_token_in_a_caption_is_no_padding(model):
    assert WordPieces(model).encode(["a [PAD] dog"]) == [pieces("a", "[UNK]", "dog")]


def test_ids_are_read_as_words_of_the_data_set_or_as_pieces_of_which_some_go_on(tiny, model):
    dataset = tiny([["a dog runs"]]).write()
    words, cut = ReadableIds(dataset, None), ReadableIds(dataset, model)
    assert [words.text(number) for number in (3, 4, dataset.vocabulary.words.index("dog"))] == [
        ("[unknown]", False), ("[mask]", False), ("dog", False),
    ]
    assert [cut.text(number) for number in (4, IDS["run"], IDS["##s"])] == [
        ("[mask]", False), ("run", False), ("s", True),
    ]
    assert (words.are_words, cut.are_words) == (True, False)


CAPTIONS = [["a dog runs", "a dog left of a bike"], ["right", "a left-handed dog"], ["a dog"]]
FOUND = [
    pieces("a", "dog", "run", "##s"), pieces("a", "dog", "left", "of", "a", "bike"), pieces("right"),
    pieces("a", "left", "-", "handed", "dog"), pieces("a", "dog"),
]
TURNED = [FOUND[0], pieces("a", "dog", "right", "of", "a", "bike"), pieces("left"), *FOUND[3:]]


def test_all_captions_of_a_split_are_kept_in_one_array(tiny, model, caplog):
    dataset = tiny(CAPTIONS).write()
    with caplog.at_level(logging.INFO):
        array = word_pieces(dataset, "train", model)
    assert array.shape == (5, 8)
    assert array.dtype == np.int32
    assert [row[row > 0].tolist() for row in array] == FOUND
    assert len(list(Path(dataset.path).glob("word-pieces-1-train-bert-*.npy"))) == 1
    assert "length limit" not in caplog.text


def test_kept_pieces_are_found_without_loading_the_tokeniser(tiny, model, monkeypatch):
    dataset = tiny(CAPTIONS).write()
    made = np.array(word_pieces(dataset, "train", model))
    monkeypatch.setattr(module, "load_tokenizer", lambda *a, **k: pytest.fail("loaded"))
    assert np.array_equal(word_pieces(dataset, "train", model), made)


def test_another_tokeniser_gives_other_pieces(tiny, model, save_bert, tmp_path):
    dataset = tiny(CAPTIONS).write()
    other = TextModel(save_bert(tmp_path / "bert", words=["dog", *WORDS[2:], "a"]))
    assert word_pieces_name(other) != word_pieces_name(model)
    assert not np.array_equal(word_pieces(dataset, "train", other), word_pieces(dataset, "train", model))


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_bring_pieces_instead_of_words(tiny, model, workers):
    dataset = tiny(CAPTIONS * 4).write()
    seen = []
    for batch in training_batches(dataset, "train", **OPTIONS, reads=NetworkReads(word_pieces=model), workers=workers):
        tokens, lengths = batch.captions.tokens, batch.captions.lengths
        assert tokens.dtype == lengths.dtype == torch.int64
        assert tokens.shape[1] == lengths.max()
        rows = zip(tokens.tolist(), lengths.tolist(), batch.caption_ids.tolist(), strict=True)
        for row, length, caption in rows:
            assert row == FOUND[caption % 5] + [PAD] * (len(row) - length)
            assert length == len(FOUND[caption % 5])
            seen.append(caption)
    assert sorted(seen) == list(range(20))
    (batch,) = evaluation_batches(dataset, "train", batch_size=100, reads=NetworkReads(word_pieces=model))
    assert [row[row > 0].tolist() for row in batch.captions.tokens] == FOUND * 4


def test_captions_of_a_mirrored_image_have_left_and_right_exchanged(tiny, model, npy):
    import io

    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, format="PNG")
    dataset = tiny(CAPTIONS * 4, photograph=lambda index: buffer.getvalue()).write()
    for flip, expected in ((1.0, TURNED), (0.0, FOUND)):
        reads = NetworkReads(word_pieces=model, pixels=PixelInput(size=4, flip=flip, swaps_sides=True))
        for batch in training_batches(dataset, "train", **OPTIONS, reads=reads):
            found = [row[row > 0].tolist() for row in batch.captions.tokens]
            assert found == [expected[caption % 5] for caption in batch.caption_ids.tolist()]


def message_of(model: str) -> str:
    with pytest.raises(ConfigError) as raised:
        WordPieces(TextModel(model))
    assert str(raised.value).startswith("network.text_model: ")
    return str(raised.value)


def refuses(folder: Path, message: str, **fields: object) -> None:
    with refused(message, by=ConfigError, key="network.text_model", **fields):
        WordPieces(TextModel(str(folder)))


def with_padding_second(folder: Path) -> None:
    lines = (folder / "vocab.txt").read_text().split("\n")
    (folder / "vocab.txt").write_text("\n".join([lines[1], lines[0], *lines[2:]]))


def configured(folder: Path, **settings: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


@pytest.mark.parametrize(("change", "message", "fields"), [
    (with_padding_second, "VSE-D068", {"found": "its padding has the id 1"}),
    (partial(configured, vocab_size=7), "VSE-D067", {"tokens": 16, "need": 7}),
    (partial(configured, hidden_size="wide"), "VSE-D062", {"model": "{folder}: configuration"}),
], ids=["padding", "another model's", "wrong type"])
def test_a_model_that_cannot_be_read_is_refused(save_bert, tmp_path, change, message, fields):
    folder = Path(save_bert(tmp_path / "bert"))
    change(folder)
    refuses(folder, message, **{name: str(value).format(folder=folder) for name, value in fields.items()})


def test_a_tokeniser_without_cls_and_sep_is_refused(model, tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: number for word, number in IDS.items() if number < 16}
    raw = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="[UNK]", pad_token="[PAD]").save_pretrained(
        tmp_path
    )
    (tmp_path / "config.json").write_text((Path(model.name) / "config.json").read_text())
    refuses(tmp_path, "VSE-D068", found="no [CLS] and [SEP]")


@pytest.mark.parametrize("kind", ["CLIP", "Siglip", "Blip"])
def test_a_model_of_text_and_images_is_refused_in_the_line_that_says_what_works(kind, tmp_path):
    config = getattr(transformers, f"{kind}Config")()
    config.save_pretrained(tmp_path)
    (tmp_path / "vocab.json").write_text(json.dumps({"a</w>": 0, "<|startoftext|>": 1, "<|endoftext|>": 2}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "CLIPTokenizer"}))
    assert f"is a {config.model_type}" in message_of(str(tmp_path))
