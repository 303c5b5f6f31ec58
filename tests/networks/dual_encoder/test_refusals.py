"""What dual encoders refuse: models of other kinds, sizes that do not fit, layers that are not there."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest
import torch
import transformers
from PIL import Image
from refusals import refused
from tiny_dual_encoders import SIZE, save_processor, save_tiny
from torch import nn

from vsetune.config.spec.loading import parse_spec
from vsetune.data.batches.image_processors import require_processor
from vsetune.data.batches.pixels import training_crop
from vsetune.data.captions.word_pieces import WordPieces
from vsetune.errors import ConfigError
from vsetune.networks.dual_encoder.spec import DualEncoderSpec
from vsetune.networks.dual_encoder.trained_layers import TowerRates, add_low_rank_updates, tower_groups
from vsetune.networks.network_building import build_network

SIZES = {"regions": 1, "width": 4, "vocabulary_size": 30}


@pytest.mark.parametrize(("setting", "use", "message", "fields"), [
    ("model", lambda spec: build_network(spec, **SIZES), "VSE-N011", {"got": "vit"}),
    ("model", lambda spec: require_processor(spec.reads.pixels.processor, size=SIZE), "VSE-D062", {}),
    ("text_model", lambda spec: WordPieces(spec.reads.word_pieces), "VSE-D062", {}),
], ids=["without both towers", "without its preprocessor", "without its tokeniser"])
def test_a_model_that_lacks_something_is_refused(setting, use, message, fields, tmp_path) -> None:
    save_tiny("vit", tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    with refused(message, by=ConfigError, key=f"network.{setting}", **fields):
        use(DualEncoderSpec(image_size=SIZE, **{setting: str(tmp_path)}))


@pytest.mark.parametrize("setting", ["model", "image_model"])
def test_a_siglip_that_reads_patches_is_refused(setting, tmp_path) -> None:
    tower = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.Siglip2Config(
        vision_config=tower | {"num_patches": 16, "patch_size": 4},
        text_config=tower | {"vocab_size": 20, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
                             "projection_size": 8},
    )
    transformers.Siglip2Model(config).save_pretrained(tmp_path)
    transformers.Siglip2ImageProcessorPil(patch_size=4, max_num_patches=16).save_pretrained(tmp_path)
    spec = DualEncoderSpec(image_size=SIZE, **{setting: str(tmp_path)})
    for check in (
        partial(build_network, spec, **SIZES), partial(require_processor, spec.reads.pixels.processor, size=SIZE)
    ):
        with refused("VSE-C135", by=ConfigError, key=f"network.{setting}", model=tmp_path):
            check()


def test_a_preprocessor_of_another_size_is_refused_with_the_setting(tmp_path) -> None:
    save_processor("clip", tmp_path)
    transformers.CLIPConfig().save_pretrained(tmp_path)
    pixels = DualEncoderSpec(model=str(tmp_path), image_size=SIZE).reads.pixels
    require_processor(pixels.processor, size=SIZE)
    with refused("VSE-D119", by=ConfigError, key="network.model", got=f"3 x {SIZE} x {SIZE}", need=64):
        require_processor(pixels.processor, size=64)


@pytest.mark.parametrize(("settings", "fields"), [
    ({"model": "one", "image_model": "two"}, {"setting": "image_model", "got": "two"}),
    ({"model": "one", "text_model": "two"}, {"setting": "text_model", "got": "two"}),
])
def test_towers_beside_a_whole_model_are_refused(settings, fields) -> None:
    with refused("VSE-N061", by=ConfigError, model="one", **fields):
        parse_spec({"name": "dual_encoder"} | settings, DualEncoderSpec, where="network")


def test_a_model_without_projections_cannot_be_frozen_whole(tmp_path) -> None:
    for kind in ("siglip", "clip"):
        save_tiny(kind, tmp_path / kind)
    frozen = {"image_size": SIZE, "image_layers": 0, "text_layers": 0}
    with refused("VSE-N065", by=ConfigError, model=tmp_path / "siglip"):
        build_network(DualEncoderSpec(model=str(tmp_path / "siglip"), **frozen), **SIZES)
    build_network(DualEncoderSpec(model=str(tmp_path / "clip"), **frozen), **SIZES)


def test_heads_must_divide_the_width() -> None:
    with refused("VSE-N024", by=ConfigError, name="word_size", size=10, count=4):
        parse_spec({"name": "dual_encoder", "word_size": 10}, DualEncoderSpec, where="network")


def test_layers_are_counted_only_where_there_are_some() -> None:
    with refused("VSE-N062", by=ConfigError, setting="image_layers", side="image"):
        tower_groups(nn.Linear(2, 2), TowerRates("image", 1, 1.0, 1.0), are_adapted=False)
    (group,) = tower_groups(nn.Linear(2, 2), TowerRates("image", None, 0.5, 1.0), are_adapted=False)
    assert (group.factor, group.start_epoch, len(group.parameters)) == (0.5, 0.0, 2)


def test_updates_need_layers_of_their_names() -> None:
    pytest.importorskip("peft", reason="the extra `lora` is not installed")
    with refused("VSE-N064", by=ConfigError, names="query or value"):
        add_low_rank_updates(nn.Sequential(nn.Linear(2, 2)), rank=1, alpha=1, names=("query", "value"))


def test_random_windows_cover_at_least_the_share() -> None:
    wanted = DualEncoderSpec(model="any", crop_low=0.8).reads.pixels
    for seed in range(20):
        left, top, right, bottom = training_crop(wanted, Image.new("RGB", (60, 40)).size, Random(seed))
        assert (right - left) * (bottom - top) >= 0.75 * 60 * 40  # sides are whole pixels
    assert DualEncoderSpec(model="any").reads.pixels.crop == "none"


def test_the_small_tower_reads_words_and_needs_no_library(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    network = build_network(DualEncoderSpec(word_size=8, heads=2), **SIZES)
    assert DualEncoderSpec().reads.word_pieces is None
    assert torch.is_tensor(network.state_dict()["towers.text.words.weight"])
