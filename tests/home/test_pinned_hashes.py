"""Hashes and names in logs, manifests and file names: a later version must find what an earlier one wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vsetune.config.sources.pretrained_models import find_model
from vsetune.config.spec.base import Choices, Range
from vsetune.config.study.training import TrainingSpec
from vsetune.data.making.raw import RawDataset, RawImage, RawSplit
from vsetune.data.making.shard_writer import Sample, write_shard
from vsetune.data.stored.manifest import ShardInfo, SplitInfo
from vsetune.networks.importing.stored import fingerprint_of_words
from vsetune.records.events import AttemptStart, attempt_id
from vsetune.training.checkpoint import is_sealed, seal_of


def test_the_fingerprint_of_a_spec() -> None:
    assert Range(low=0.05, high=0.5, log=True).fingerprint() == "3776631e5f72f5a3"
    assert Choices(choices=[1, "é", False]).fingerprint() == "d56899acf9976ba9"


def test_the_fingerprint_of_a_training_that_says_nothing_of_later_keys() -> None:
    assert TrainingSpec().fingerprint() == "5dd38f5e3bcb55ae"
    phases = [{"epochs": 1}, {}]
    assert TrainingSpec.model_validate({"phases": phases, "weight_decay": 0.1}).fingerprint() == "7df30865d1a81392"


def test_the_digest_of_a_source() -> None:
    image = RawImage(id="a.jpg", captions=("a dog", "ein Hündchen"))
    assert RawDataset({"train": RawSplit([image]), "test": RawSplit([])}).digest() == (
        "ea7ad857017f24d6d240b884b1c0e21d2c4e132ed8288195aee54e533a758caf"
    )


def test_the_bytes_of_a_shard(tmp_path: Path) -> None:
    features = np.arange(8, dtype=np.float16).reshape(2, 4)
    sample = Sample(index=0, first_caption=0, id="a.jpg", captions=["a dog"], features=features)
    info = write_shard(tmp_path / "train-000000.tar", [sample], first_image=0, first_caption=0)
    assert info is not None
    assert info.bytes == 10240
    assert info.sha256 == "11aade9a8531e0edf9b61a0a8cbd2112079a9713dc684e1f88b08a9d18b7a635"


def test_the_fingerprint_of_captions() -> None:
    def shard(sha256: str) -> ShardInfo:
        return ShardInfo(file=sha256, sha256=sha256, bytes=9, images=1, captions=1, first_image=0, first_caption=0)

    shards = [shard("aa"), shard("bb")]
    split = SplitInfo(images=2, captions=2, captions_min=1, captions_max=1, captions_mean=1, shards=shards)
    assert split.captions_fingerprint == "dc7497ab2b33"


def test_the_fingerprint_of_words() -> None:
    assert fingerprint_of_words(["<pad>", "dog", "chien"]) == "c9febeb7297e4611"


def test_the_name_of_an_attempt() -> None:
    start = AttemptStart(
        study="tiny", trial="vsepp.lmh-c000-s0", cell="vsepp.lmh", network="vsepp", loss="lmh", number=2, seed=0,
        phase="search", configuration={}, resolved={}, environment={}, protocol={},
    )
    assert attempt_id(start) == "tiny/vsepp.lmh-c000-s0/2"


def test_the_identity_of_a_model_folder(tmp_path: Path) -> None:
    folder = tmp_path / "encoder"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    assert find_model(str(folder), None, key="model").identity == "encoder-52d28cb8b196"


def test_the_seal_of_a_checkpoint(tmp_path: Path) -> None:
    digest = "4ba69735ca53765ed6a709edb56c6ea236b7193a3b29a6b390c346f0f4340e4e"
    assert seal_of(b"state") == f"\nvsetune SHA-256 {digest}\n".encode()
    (tmp_path / "sealed").write_bytes(b"state" + seal_of(b"state"))
    assert is_sealed(tmp_path / "sealed")
    (tmp_path / "sealed").write_bytes(b"stale" + seal_of(b"state"))
    assert not is_sealed(tmp_path / "sealed")
