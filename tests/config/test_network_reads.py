"""What each network says it reads, in one value that the reader of batches takes as it is."""

from __future__ import annotations

from typing import Any

import pytest
from refusals import refused

from vsetune.config.component_specs import NETWORKS, NetworkSpec
from vsetune.config.sources.trial_inputs import FEATURES_AND_WORDS, NetworkReads, TextModel

OTHERWISE: dict[str, NetworkReads] = {
    "cgmn": NetworkReads(dependencies=True),
    "gsmn": NetworkReads(boxes=True),
    "tags": NetworkReads(boxes=True, siblings=True, phrases=True),
}
"""Networks that at their defaults read more than features and words."""


class PluginSpec(NetworkSpec):
    """A network of somebody else that says nothing."""


def test_a_network_that_says_nothing_reads_features_and_words() -> None:
    assert PluginSpec().reads == FEATURES_AND_WORDS == NetworkReads(False, False, None, None)


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_at_its_defaults_a_network_reads(name: str) -> None:
    assert NETWORKS[name]().reads == OTHERWISE.get(name, FEATURES_AND_WORDS)


@pytest.mark.parametrize(
    ("name", "chosen", "reads"),
    [
        ("cgmn", {"spatial_graph": True}, NetworkReads(boxes=True, dependencies=True)),
        ("cgmn", {"caption_graph": "dense"}, FEATURES_AND_WORDS),
        ("gsmn", {"text_graph": "sparse"}, NetworkReads(boxes=True, dependencies=True)),
        ("vse_infinity", {"text_tower": "bert"}, NetworkReads(word_pieces=TextModel("bert-base-uncased"))),
        ("tags", {"mlm_weight": 0.0}, NetworkReads(boxes=True)),
        ("tags", {"text_model": "my/bert", "mlm_weight": 0}, NetworkReads(True, word_pieces=TextModel("my/bert"))),
    ],
)
def test_a_setting_changes_what_is_read(name: str, chosen: dict[str, Any], reads: NetworkReads) -> None:
    assert NETWORKS[name].model_validate({"name": name, **chosen}).reads == reads


@pytest.mark.parametrize("name", ["malali_keller", "mse", "vse_infinity", "vsepp"])
def test_photographs_are_read_where_a_network_is_told_to(name: str) -> None:
    grid = {"image_mlp": False} if name == "vse_infinity" else {}
    spec = NETWORKS[name].model_validate({"name": name, "image_input": "pixels", "image_size": 96, **grid})
    assert spec.reads.pixels is not None
    assert spec.reads.pixels.size == 96


def test_parses_of_word_pieces_are_refused() -> None:
    with refused("VSE-C096"):
        NetworkReads(dependencies=True, word_pieces=TextModel("bert"))
