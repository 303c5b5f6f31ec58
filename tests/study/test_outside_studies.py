"""Studies on shards of other software: checked, indexed when the study asks for it, trained, resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from outside_files import make_index, write_shards
from refusals import refused
from rich.console import Console

from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import ConfigError, StudyConflict
from vsetune.home.hashes import fingerprint_of
from vsetune.study.preparation import prepare_study

PHOTOGRAPHS = {
    "embedding_size": 8, "word_size": 6, "image_input": "pixels", "backbone": {"model": "random"}, "image_size": 32,
}


@pytest.fixture
def study(tmp_path: Path) -> Any:
    """study(data, network, settings): a study file."""
    write_shards(tmp_path)

    def write(data: dict[str, Any], network: str = "mse", settings: dict[str, Any] | None = None) -> Path:
        file = tmp_path / "study.yaml"
        file.write_text(json.dumps({
            "study": "tiny", "data": data, "losses": [{"name": "lmh"}], "seeds": [0],
            "networks": [{"name": network, "fixed": PHOTOGRAPHS if settings is None else settings}],
            "training": {"epochs": 1, "batch_size": 4},
        }))
        return file

    return write


def indexing(folder: Path, **changes: Any) -> dict[str, Any]:
    shards = {
        "shards": str(folder / "train-{0..2}.tar"), "validation": str(folder / "val-0.tar"), "vocabulary_min_count": 1,
    }
    return {"path": str(folder / "indexed"), "index": shards | changes}


def test_a_network_that_reads_photographs_fits(study: Any, tmp_path: Path) -> None:
    dataset = make_index(tmp_path)
    prepared = prepare_study(study({"path": dataset.path}), Console(quiet=True))
    assert prepared.data_fingerprint == dataset.fingerprint


def test_a_network_that_reads_features_is_refused(study: Any, tmp_path: Path) -> None:
    dataset = make_index(tmp_path)
    with refused("VSE-D094", by=ConfigError, folder=dataset.path):
        prepare_study(study({"path": dataset.path}, "vsepp", {}), Console(quiet=True))


def test_a_study_indexes_its_shards_once(study: Any, tmp_path: Path) -> None:
    file = study(indexing(tmp_path))
    prepared = prepare_study(file, Console(quiet=True))
    assert prepared.spec.data.path == str(tmp_path / "indexed")
    manifest = tmp_path / "indexed" / "manifest.json"
    written = manifest.stat().st_mtime_ns
    again = prepare_study(file, Console(quiet=True)).record()
    assert manifest.stat().st_mtime_ns == written
    assert again.fingerprint == prepared.record().fingerprint
    by_path = prepare_study(study({"path": str(tmp_path / "indexed")}), Console(quiet=True))
    assert by_path.record().fingerprint == again.fingerprint


def test_problems_of_its_shards_are_named_with_the_file(study: Any, tmp_path: Path) -> None:
    (tmp_path / "train-1.tar").unlink()
    file = study(indexing(tmp_path))
    with refused("VSE-D096", by=ConfigError, shard=str(tmp_path / "train-1.tar")) as caught:
        prepare_study(file, Console(quiet=True))
    assert str(caught.value).startswith(f"{file}: data.index: ")
    assert prepare_study(study(indexing(tmp_path, on_damaged="skip")), Console(quiet=True))
    with refused("VSE-D095", by=StudyConflict, place=str(tmp_path / "indexed")):
        prepare_study(study(indexing(tmp_path, captions="json.caption")), Console(quiet=True))


def test_scenes_and_shards_do_not_go_together(study: Any, tmp_path: Path) -> None:
    with refused("VSE-C018", by=ConfigError):
        prepare_study(study(indexing(tmp_path) | {"scenes": {}}), Console(quiet=True))


def test_studies_without_shards_keep_their_fingerprints(tmp_path: Path) -> None:
    plain = {"study": "s", "data": {"path": "x"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}]}
    spec = StudySpec.model_validate(plain)
    assert "index" not in spec.to_plain()["data"]
    assert spec.fingerprint() == fingerprint_of(spec.fingerprinted())
