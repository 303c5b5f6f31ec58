"""VSE-infinity's captions by BERT."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import refused
from torch import Tensor

from vsetune.config.sources.trial_inputs import TextModel
from vsetune.data.captions.word_pieces import WordPieces
from vsetune.errors import ConfigError
from vsetune.networks.inputs import CaptionInputs
from vsetune.networks.network_base import Network
from vsetune.networks.network_building import build_network
from vsetune.networks.parts.text_transformer import TextTransformer, weights_follow
from vsetune.networks.vse_infinity.spec import VseInfinitySpec

TOKENS = torch.tensor([[2, 5, 6, 7, 8, 9, 3], [2, 11, 6, 3, 0, 0, 0], [2, 3, 0, 0, 0, 0, 0]])
LENGTHS = torch.tensor([7, 4, 2])


def make(bert: str, **settings: Any) -> Network:
    torch.manual_seed(0)
    spec = VseInfinitySpec(embedding_size=8, pooling_size=4, text_tower="bert", text_model=bert, **settings)
    return build_network(spec, regions=2, width=7, vocabulary_size=99).double().eval()


def vectors(network: Network, tokens: Tensor = TOKENS, lengths: Tensor = LENGTHS) -> Tensor:
    return network.encode_captions(CaptionInputs(tokens, lengths)).vectors


@torch.no_grad()
def test_a_caption_is_the_pooled_map_of_the_last_states_of_all_its_pieces(bert: str) -> None:
    from transformers import BertModel

    network, model = make(bert), BertModel.from_pretrained(bert).double().eval()
    for row, length in enumerate(LENGTHS.tolist()):
        states = model(input_ids=TOKENS[row : row + 1, :length]).last_hidden_state[0]
        mapped = states @ network.word_map.weight.T + network.word_map.bias
        theta = network.caption_pooling.weights(torch.tensor([length]))[0]
        pooled = (mapped.sort(dim=0, descending=True).values * theta[:, None]).sum(dim=0)
        torch.testing.assert_close(vectors(network)[row], pooled / pooled.norm(), rtol=1e-9, atol=1e-9)


def test_its_own_dropout_acts_in_training_alone(bert: str) -> None:
    network = make(bert, augment=False)
    assert torch.equal(vectors(network), vectors(network))
    network.train()
    assert not torch.allclose(vectors(network), vectors(network))


def test_augmentation_changes_whole_words_in_training(bert: str) -> None:
    network = make(bert).train()
    network.transformer.body.eval()
    seen = torch.stack([vectors(network)[0] for _ in range(40)])
    assert 4 < len(seen.unique(dim=0)) < 40


def test_bert_and_the_rest_train_at_rates_of_their_own(bert: str) -> None:
    network = make(bert)
    rest, text = network.parameter_groups()
    assert (rest.factor, rest.start_epoch, text.factor, text.start_epoch) == (1.0, 0.0, 0.1, 0.0)
    assert {id(each) for each in text.parameters} == {id(each) for each in network.transformer.parameters()}
    assert len(rest.parameters) + len(text.parameters) == len(list(network.parameters()))
    vectors(network.train()).sum().backward()
    assert all(parameter.grad is not None for parameter in text.parameters)
    assert not hasattr(network, "words")


def test_a_caption_longer_than_the_model_reads_is_refused(bert: str) -> None:
    with refused("VSE-N007", most=16, got=17):
        vectors(make(bert), torch.ones(1, 17, dtype=torch.int64), torch.tensor([17]))


def test_its_spec_says_which_word_pieces_it_reads(bert: str) -> None:
    assert VseInfinitySpec(text_tower="bert", text_model=bert).reads.word_pieces == TextModel(bert)
    pinned = VseInfinitySpec(text_tower="bert", text_revision="abc")
    assert pinned.reads.word_pieces == TextModel("bert-base-uncased", "abc")
    assert VseInfinitySpec().reads.word_pieces is None


def test_weights_and_tokeniser_are_those_of_the_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    commit, asked = "0123456789" * 4, []

    def refuse(place: str, **options: Any) -> None:
        asked.append((place, options["revision"]))
        raise OSError("not here")

    def configuration(place: str, **options: Any) -> Any:
        asked.append((place, options["revision"]))
        return pytest.importorskip("transformers").BertConfig()

    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", configuration)
    for name in ("AutoModel", "AutoTokenizer"):
        monkeypatch.setattr(f"transformers.{name}.from_pretrained", refuse)
    model = VseInfinitySpec(text_tower="bert", text_revision=commit).reads.word_pieces
    for read in (TextTransformer, WordPieces):
        with pytest.raises(ConfigError, match=r"^network.text_model: .*not here"):
            read(model)
    assert asked == [("bert-base-uncased", commit)] * 3  # the tokeniser's configuration, too


def test_the_tokeniser_tells_mask_ends_and_pieces_that_go_on(bert: str) -> None:
    pieces = TextTransformer(TextModel(bert)).pieces(torch.device("cpu"))
    assert (pieces.mask, pieces.fixed) == (4, (2, 3))
    assert pieces.continues.nonzero().flatten().tolist() == [7, 9, 10]


def test_without_pre_trained_weights_the_model_starts_at_random_and_finds_its_tokeniser_later(bert: str) -> None:
    with weights_follow():
        built = TextTransformer(TextModel(bert))
    read = TextTransformer(TextModel(bert))
    assert not torch.equal(*(each.body.embeddings.word_embeddings.weight for each in (built, read)))
    assert built.pieces(torch.device("cpu")).mask == 4
    built.load_state_dict(read.state_dict())


def test_a_model_that_reads_no_word_pieces_is_refused(resnet: str) -> None:
    with pytest.raises(ConfigError, match=r"^network.text_model: .* is a resnet; need one that reads word pieces"):
        TextTransformer(TextModel(resnet))


def test_a_model_without_its_tokeniser_is_refused(bert: str, tmp_path: Path) -> None:
    folder = shutil.copytree(bert, tmp_path / "bert")
    for name in ("vocab.txt", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(ConfigError) as caught:
        TextTransformer(TextModel(str(folder)))
    assert caught.value.problem.code in ("VSE-N010", "VSE-N014")
    assert "\n" not in caught.value.problem


def test_a_model_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^network.text_model: the package no_such_model is not installed"):
        TextTransformer(TextModel("package:no_such_model"))
