"""`vsetune networks import`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

from vsetune.config.study.study_entries import NetworkEntry
from vsetune.networks.importing.imported import network_of


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A VSE++ model as its training script saves it."""
    path = tmp_path / "model_best.pth.tar"
    image, cnn = nn.Linear(6, 8), nn.Conv2d(3, 2, 3)
    states = [
        {**image.state_dict(prefix="fc."), **cnn.state_dict(prefix="cnn.")},
        {
            **nn.Embedding(12, 5).state_dict(prefix="embed."),
            **nn.GRU(5, 8, batch_first=True).state_dict(prefix="rnn."),
        },
    ]
    torch.save({"epoch": 3, "model": states, "opt": argparse.Namespace(use_abs=False, no_imgnorm=False)}, path)
    return path


def test_import_writes_weights_and_an_entry_for_a_study_file(vsetune, checkpoint) -> None:
    said = vsetune("networks", "import", "--from", "vsepp", str(checkpoint))
    folder = checkpoint.with_name("model_best-vsetune")
    assert said.code == 0
    assert said.out == (folder / "network.yaml").read_text()
    assert "# not in the file: similarity; set them as the weights were trained" in said.out
    assert "not needed: 2 tensors, img_enc.cnn.bias, ...: " in said.err
    assert f"{folder / 'weights.safetensors'}: 476 numbers in 7 tensors" in said.err
    entry = NetworkEntry.model_validate(yaml.safe_load(said.out)["networks"][0])
    assert entry.fixed["embedding_size"] == 8
    assert sum(tensor.numel() for tensor in network_of(folder / "weights.safetensors").state_dict().values()) == 476


def test_import_tells_machines_the_same(vsetune, checkpoint, tmp_path) -> None:
    said = vsetune(
        "networks", "import", "--from", "vsepp", str(checkpoint), "--output", str(tmp_path / "new"), "--json"
    )
    found = json.loads(said.out)
    assert (found["width"], found["vocabulary_size"], found["parameters"]) == (6, 12, 476)
    assert found["network"]["name"] == "vsepp"
    assert Path(found["weights"]).is_file()


def test_import_refuses_what_is_not_a_model_of_this_source_or_would_be_overwritten(vsetune, checkpoint) -> None:
    folder = checkpoint.with_name("model_best-vsetune")
    assert vsetune("networks", "import", "--from", "sgraf", str(checkpoint)).refused("txt_enc.cap_rnn.weight_ih_l0")
    assert vsetune("networks", "import", "--from", "vsep", str(checkpoint)).refused("--from: ", "vsep", "vsepp")
    assert not folder.exists()
    folder.mkdir()
    said = vsetune("networks", "import", "--from", "vsepp", str(checkpoint))
    assert said.refused("VSE-X010", f"{folder}: ", "--output")
