"""`vsetune networks import`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def test_import_writes_weights_and_an_entry_for_a_study_file(vsetune: Callable[..., Any], checkpoint: Path) -> None:
    said = vsetune("networks", "import", "--from", "vsepp", str(checkpoint))
    folder = checkpoint.with_name("model_best-vsetune")
    assert said.code == 0
    assert said.out == (folder / "network.yaml").read_text()
    assert "# not in the file: similarity; set them as the weights were trained" in said.out
    assert "not needed: 2 tensors, img_enc.cnn.bias, ...: the CNN; ingest vectors of this CNN" in said.err
    assert f"{folder / 'weights.safetensors'}: 476 numbers in 7 tensors" in said.err
    entry = NetworkEntry.model_validate(yaml.safe_load(said.out)["networks"][0])
    assert entry.fixed["embedding_size"] == 8
    assert sum(tensor.numel() for tensor in network_of(folder / "weights.safetensors").state_dict().values()) == 476


def test_import_tells_machines_the_same(vsetune: Callable[..., Any], checkpoint: Path, tmp_path: Path) -> None:
    said = vsetune(
        "networks", "import", "--from", "vsepp", str(checkpoint), "--output", str(tmp_path / "new"), "--json"
    )
    found = json.loads(said.out)
    assert (found["width"], found["vocabulary_size"], found["parameters"]) == (6, 12, 476)
    assert found["network"]["name"] == "vsepp"
    assert Path(found["weights"]).is_file()


def test_import_refuses_a_file_of_another_network_and_writes_nothing(
    vsetune: Callable[..., Any], checkpoint: Path
) -> None:
    said = vsetune("networks", "import", "--from", "sgraf", str(checkpoint))
    assert said.code == 2
    assert all(line.startswith("error ") for line in said.lines)
    assert len(said.lines) == 1
    assert " missing: txt_enc.cap_rnn.weight_ih_l0, " in said.err
    assert not checkpoint.with_name("model_best-vsetune").exists()


def test_import_does_not_write_over_an_earlier_result(vsetune: Callable[..., Any], checkpoint: Path) -> None:
    checkpoint.with_name("model_best-vsetune").mkdir()
    said = vsetune("networks", "import", "--from", "vsepp", str(checkpoint))
    assert said.code == 2
    assert "exists already; choose another --output, or remove it" in said.err


def test_import_suggests_the_nearest_source(vsetune: Callable[..., Any], checkpoint: Path) -> None:
    said = vsetune("networks", "import", "--from", "vsep", str(checkpoint))
    assert said.code == 2
    assert "--from: no released implementation is called vsep; did you mean vsepp?" in said.err
