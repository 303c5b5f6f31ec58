"""Bad input gets one line that names the thing and the fix, exit code 2, and leaves nothing half-written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import yaml

VALIDATE = ("study", "validate")
REPOSITORY = Path(__file__).parents[2]
SIZES = {"train": 24, "validation": 8, "test": 8}


@pytest.fixture
def scenes(vsetune, home) -> Path:
    """The folder of the data set of a study."""
    assert vsetune("data", "make-scenes", "--train", "24", "--validation", "8", "--test", "8").code == 0
    return home / "data" / "scenes"


@pytest.fixture
def fewer_regions(scenes) -> None:
    """The images of the data set have 10 to 36 regions."""
    manifest = scenes / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"regions_min": 36', '"regions_min": 10'))


@pytest.mark.parametrize(("words", "file", "kind"), [
    (VALIDATE, "studies/nightly.yaml", "nightly file"),
    (VALIDATE, "cluster.yaml", "cluster file"),
    (("nightly", "run"), "studies/quickstart.yaml", "study file"),
    (("data", "ingest"), "studies/quickstart.yaml", "study file"),
    (("data", "index"), "studies/data/scenes.yaml", "ingest recipe"),
    (("study", "run"), "studies/data/scenes.yaml", "ingest recipe"),
])
def test_a_file_of_another_kind_is_called_by_its_kind(vsetune, words, file, kind) -> None:
    assert vsetune(*words, str(REPOSITORY / file)).refused(file, kind)


@pytest.mark.parametrize(("backbone", "words"), [
    (3, ("network.backbone: ", "3")),
    ({"model": "random", "widths": [0], "depths": [1]}, ("network.backbone: widths[0]: ", "0")),
])
def test_a_cnn_with_a_mistake_is_named_with_the_place_of_it(vsetune, study, backbone, words) -> None:
    network = {"name": "vsepp", "fixed": {"image_input": "pixels", "backbone": backbone}}
    assert vsetune(*VALIDATE, str(study(networks=[network]))).refused(*words)


def test_all_problems_of_a_file_are_listed_one_line_each(vsetune, study) -> None:
    said = vsetune(*VALIDATE, str(study(training={"epochs": -1, "batch_size": 1}, seeds=[])))
    assert (said.code, len(said.lines)) == (2, 3)


def test_weights_of_a_cnn_that_are_not_there(vsetune, study, scenes) -> None:
    cnn = {"model": "vgg19", "weights": "/nowhere/vgg19.pth"}
    network = {"name": "vsepp", "fixed": {"image_input": "pixels", "backbone": cnn}}
    said = vsetune(*VALIDATE, str(study(networks=[network])))
    assert said.refused("cell vsepp.lmh: network.backbone.weights: /nowhere/vgg19.pth")


@pytest.mark.parametrize("command", [("train",), ("study", "run")])
def test_a_home_that_cannot_be_written(command, vsetune, study, home, monkeypatch) -> None:
    (home / "file").touch()
    monkeypatch.setenv("VSETUNE_HOME", str(home / "file" / "home"))
    assert vsetune(*command, str(study())).refused("data.scenes: ", "Not a directory", "VSETUNE_HOME", "data.path")
    monkeypatch.setenv("VSETUNE_HOME", str(home / "file"))
    assert vsetune(*command, str(study())).code == 2


def test_a_missing_data_folder_or_study_file(vsetune, study, home, tmp_path) -> None:
    assert vsetune("train", str(study(data={"path": "data/nothing"}))).refused("data/nothing", "vsetune data")
    assert not (home / "runs").exists()
    assert vsetune(*VALIDATE, str(tmp_path / "none.yaml")).refused("none.yaml: ")


@pytest.mark.parametrize("words", [
    ("data", "show", "data/scenes", "--sheet"),
    *(("leaderboard", "export", "tiny", f"--{kind}") for kind in (
        "html", "csv", "json", "markdown", "curves", "latex",
    )),
    ("leaderboard", "repeat", "tiny/vsepp.lmh", "--output"),
    ("losses", "new", "my_own", "--folder"),
    ("networks", "import", "--from", "vsepp", "weights.pth", "--output"),
    ("networks", "new", "my_own", "--folder"),
    ("study", "explain", "tiny", "--output"),
    ("tracking", "export", "tiny", "--to"),
    ("trial", "curves", "tiny/vsepp.lmh-c000-s0", "--output"),
    ("trial", "gallery", "tiny/vsepp.lmh-c000-s0", "--output"),
])
def test_an_address_is_no_place_to_write(vsetune, words, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert vsetune(*words, "s3://bucket/board.svg").refused("VSE-X006", words[-1], "s3://bucket/board.svg")
    assert not Path("s3:").exists()


def test_an_ingest_that_was_complete_writes_nothing_and_repeats_its_notes(vsetune, tmp_path, caplog) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({
        "name": "pets", "output": "data/pets", "features": {"extractor": "pixels", "grid": 1},
        "source": {"layout": "scenes", "train": 2, "validation": 1, "test": 0}, "vocabulary_min_count": 1000,
    }))
    for is_written in (True, False):
        caplog.clear()
        said = vsetune("data", "ingest", str(recipe))
        assert said.code == 0
        assert ("written: " in said.err, "complete since an earlier run" in said.err) == (is_written, not is_written)
        assert (said.err + caplog.text).count("fewer than 1000 times") == 1, said


def test_a_damaged_shard(vsetune, study, scenes) -> None:
    shard = scenes / "train-000000.tar"
    content = bytearray(shard.read_bytes())
    content[len(content) // 3] ^= 0xFF
    shard.write_bytes(content)
    assert vsetune("train", str(study())).refused("train-000000.tar")
    said = vsetune("data", "verify", "data/scenes")
    assert said.code == 2
    assert said.out.startswith("error ")
    assert f"{shard}: " in said.out.splitlines()[0]


@pytest.mark.usefixtures("fewer_regions")
@pytest.mark.parametrize(("network", "words"), [
    ({"name": "vsepp", "fixed": {"image_input": "flatten"}}, ("cell vsepp.lmh: network.image_input: flatten",)),
    ({"name": "gsmn"}, ("cell gsmn.lmh: ", "gsmn", "boxes")),
])
def test_a_network_that_does_not_fit_the_regions(vsetune, study, network, words) -> None:
    assert vsetune("train", str(study(networks=[network], data={"path": "data/scenes"}))).refused(*words, "10 to 36")


def test_every_cell_that_does_not_fit_the_data_is_listed(vsetune, study, scenes, home) -> None:
    networks = [
        {"name": "vsepp", "fixed": {"image_input": "global"}},
        {"name": "vse_infinity", "training": {"batch_unit": "images"}},
    ]
    said = vsetune("train", str(study(networks=networks, losses=[{"name": "lmh"}, {"name": "info_nce"}])))
    assert (said.code, len(said.lines)) == (2, 2), "one line for both cells of a network"
    assert "cells vsepp.lmh, vsepp.info_nce: " in said.lines[0]
    assert sum("image_input" in line and "36" in line for line in said.lines) == 1
    assert sum("batch_size" in line and "24 images" in line for line in said.lines) == 1
    assert not (home / "runs").exists()


@pytest.mark.parametrize(("changes", "words"), [
    ({"data": {"path": "data/scenes", "scenes": SIZES, "test_split": "tset"}}, ("data.test_split", "tset")),
    ({"data": {"path": "data/scenes", "scenes": SIZES, "validation_split": "dev"}}, ("data.validation_split", "dev")),
])
def test_splits_that_are_not_there(vsetune, study, changes, words) -> None:
    said = vsetune("train", str(study(**changes)))
    assert said.code == 2
    assert all(word in said.lines[-1] for word in words), said.err


def test_scenes_at_a_remote_place_or_in_a_folder_of_others(vsetune, study, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    remote = study(data={"path": "s3://bucket/x", "scenes": SIZES})
    assert vsetune("train", str(remote)).refused("data.scenes: ", "s3://bucket/x")
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"]
    assert vsetune("data", "make-scenes", "--train", "12", "--validation", "8", "--test", "8").code == 0
    assert vsetune("train", str(study())).refused("data.scenes")


def test_no_space_left_names_the_place_and_leaves_nothing(vsetune, study, home, monkeypatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    said = vsetune("train", str(study()))
    assert said.code == 2
    assert "error VSE-D006: " in said.lines[-1]
    assert str(home) in said.lines[-1]
    assert not list(home.rglob("manifest.json"))


def test_a_study_or_a_server_that_is_not_there(vsetune, home) -> None:
    assert vsetune("leaderboard", "show", "nothing").refused("nothing")
    assert not (home / "mlflow.db").exists()
    assert vsetune("tracking", "import", "x", "--tracking-uri", "http://127.0.0.1:9").refused("127.0.0.1:9")
