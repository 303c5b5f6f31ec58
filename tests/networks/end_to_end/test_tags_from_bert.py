"""TAGS that starts from a BERT of `transformers`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from refusals import refused

from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import TrainingItems
from vsetune.networks.network_building import build_network
from vsetune.networks.parts.text_transformer import architecture_of
from vsetune.networks.tags.network import Tags
from vsetune.networks.tags.spec import TagsSpec

TOKENS = torch.tensor([[2, 5, 6, 7, 8, 9, 3], [2, 11, 6, 3, 0, 0, 0]])
LENGTHS = torch.tensor([7, 4])


def make(bert: str, *, pretrained: bool = True, architecture: Any = None, **settings: Any) -> Tags:
    torch.manual_seed(0)
    shape = {"embedding_size": 12, "layers": 2, "heads": 3} | settings
    built = build_network(
        TagsSpec(text_model=bert, **shape), regions=4, width=7, vocabulary_size=99, pretrained=pretrained,
        architecture=architecture,
    ).double().eval()
    assert isinstance(built, Tags)
    return built


@torch.no_grad()
def test_without_regions_its_states_are_those_of_the_bert_it_starts_from(bert: str) -> None:
    from transformers import BertModel

    network, model = make(bert), BertModel.from_pretrained(bert).double().eval()
    is_real = torch.arange(7) < LENGTHS[:, None]
    states = network.encoder(network.inputs.of_words(TOKENS), is_real, torch.arange(7).expand(2, 7))
    expected = model(input_ids=TOKENS, attention_mask=is_real.long()).last_hidden_state
    torch.testing.assert_close(states[is_real], expected[is_real], rtol=0, atol=1e-9)
    assert torch.equal(network.inputs.types.weight, model.embeddings.token_type_embeddings.weight)


def test_all_pieces_of_a_word_are_masked_together_and_ends_never(bert: str) -> None:
    network = make(bert)
    phrases = network.ids.phrases(CaptionInputs(TOKENS, LENGTHS))
    assert [[row.nonzero().flatten().tolist() for row in caption if row.any()] for caption in phrases] == [
        [[1], [2, 3], [4, 5]], [[1], [2]],  # a, dog ##s, run ##ning; red, dog
    ]
    assert network.ids.mask() == 4
    assert network.ids.ordinary(torch.device("cpu")).tolist() == [1, 5, 6, 7, 8, 9, 10, 11, 12]
    images = network.encode_images(ImageInputs(torch.randn(2, 4, 7).double(), torch.tensor([4, 4])))
    captions = CaptionInputs(TOKENS, LENGTHS)
    items = TrainingItems(
        images, network.encode_captions(captions), captions, torch.tensor([0, 1]), ~torch.eye(2, dtype=torch.bool)
    )
    assert network.train().auxiliary_losses(items)["mlm"] > 0


def test_a_network_of_another_shape_than_the_bert_is_refused_with_the_shape_to_set(bert: str) -> None:
    with refused("VSE-N012", settings="layers: 2, heads: 3"):
        make(bert, layers=3, heads=2)


def test_a_text_model_that_is_no_bert_is_refused(bert: str, tmp_path: Path) -> None:
    from transformers import BertModel, ElectraConfig, ElectraModel

    folder = shutil.copytree(bert, tmp_path / "electra")
    size = BertModel.from_pretrained(bert).config.vocab_size
    config = ElectraConfig(
        vocab_size=size, embedding_size=12, hidden_size=12, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=20, max_position_embeddings=16,
    )
    ElectraModel(config).save_pretrained(folder)
    with refused("VSE-N011", got="electra with gelu", need="a BERT with gelu"):
        make(str(folder))


def test_saved_weights_are_loaded_without_the_files_of_the_bert(bert: str) -> None:
    network = make(bert)
    again = make("/gone/bert", pretrained=False, architecture=architecture_of(network))
    again.load_state_dict(network.state_dict())
    read = CaptionInputs(TOKENS, LENGTHS)
    assert torch.equal(network.encode_captions(read).vectors, again.encode_captions(read).vectors)
