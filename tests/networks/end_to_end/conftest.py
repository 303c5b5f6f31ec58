"""Tiny pre-trained models in folders, and small photographs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from vsetune.networks.inputs import ImageInputs

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "##s", "run", "##ning", "##er", "red", "left"]
"""Ids 0 to 12."""
LONGEST = 16


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a BERT of two layers, 12 wide, random weights, and its tokeniser."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("models") / "bert"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(PIECES))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.BertConfig(
            vocab_size=len(PIECES), hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20,
            max_position_embeddings=LONGEST, initializer_range=0.4,
        )
        transformers.BertModel(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a ResNet of two stages, 6 channels at the end, and a preprocessor with colours of its own."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("models") / "resnet"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4, 6], depths=[1, 1], layer_type="basic")
        transformers.ResNetModel(config).save_pretrained(folder)
    colours = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
    (folder / "preprocessor_config.json").write_text(json.dumps(colours))
    return str(folder)


def drawn(images: int, *, crops: int = 1, size: int = 32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (images, crops, 3, size, size), generator=generator, dtype=torch.uint8)


@pytest.fixture
def photographs() -> Callable[..., ImageInputs]:
    """photographs(images, crops=1, size=32, seed=0): noise, with features that nothing should read."""

    def make(images: int, **options: int) -> ImageInputs:
        nothing = torch.full((images, 1, 7), torch.nan, dtype=torch.float64)
        return ImageInputs(nothing, torch.ones(images, dtype=torch.int64), pixels=drawn(images, **options))

    return make


@pytest.fixture
def folder_without(resnet: str, tmp_path: Path) -> Callable[[str], str]:
    """folder_without(name): the ResNet, this tensor missing in its weights."""
    import shutil

    import safetensors.torch

    def make(name: str) -> str:
        folder = shutil.copytree(resnet, tmp_path / "damaged")
        file = folder / "model.safetensors"
        tensors = safetensors.torch.load_file(file)
        del tensors[name]
        safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})
        return str(folder)

    return make
