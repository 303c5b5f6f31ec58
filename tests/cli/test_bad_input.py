"""Bad input gets one line that names the thing and the fix, exit code 2, and leaves nothing half-written."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

VALIDATE = ("study", "validate")
REPOSITORY = Path(__file__).parents[2]


def assert_refused(said: object, *words: str) -> None:
    assert said.code == 2, said  # type: ignore[attr-defined]
    assert len(said.lines) == 1, said.err  # type: ignore[attr-defined]
    for word in words:
        assert word in said.err, said.err  # type: ignore[attr-defined]
    assert "Traceback" not in said.err  # type: ignore[attr-defined]


def make(vsetune: Callable, path: Path) -> None:
    """The data set of a study, by way of a command that makes it."""
    assert vsetune("data", "make-scenes", "--train", "24", "--validation", "8", "--test", "8").code == 0
    assert path.exists()


def test_an_unknown_key(vsetune, study) -> None:
    said = vsetune(*VALIDATE, str(study(trainig={})))
    assert_refused(said, "study.yaml: trainig: unknown key; did you mean training")


@pytest.mark.parametrize(("words", "file", "told"), [
    (VALIDATE, "studies/nightly.yaml", "is a nightly file, need a study file; vsetune nightly run takes it"),
    (VALIDATE, "cluster.yaml", "is a cluster file, need a study file; ray up takes it"),
    (("nightly", "run"), "studies/quickstart.yaml", "is a study file, need a nightly file; vsetune study run takes it"),
    (("data", "ingest"), "studies/quickstart.yaml", "is a study file, need an ingest recipe"),
    (("study", "run"), "studies/data/scenes.yaml", "is an ingest recipe, need a study file; vsetune data ingest takes"),
])
def test_a_file_of_another_kind_is_called_by_its_kind(vsetune, words, file, told) -> None:
    assert_refused(vsetune(*words, str(REPOSITORY / file)), file, told)


def test_an_unknown_loss(vsetune, study) -> None:
    said = vsetune(*VALIDATE, str(study(losses=[{"name": "lshe"}], baseline="lshe")))
    assert_refused(said, "losses[0].name", "lshe", "did you mean")


def test_a_number_out_of_range(vsetune, study) -> None:
    said = vsetune(*VALIDATE, str(study(losses=[{"name": "lmh", "fixed": {"margin": -0.2}}])))
    assert_refused(said, "loss.margin: got -0.2, need a number >= 0")


@pytest.mark.parametrize(("backbone", "said"), [
    (3, "network.backbone: got 3, need a mapping of keys to values, such as {model: ...}"),
    ({"model": "random", "widths": [0], "depths": [1]}, "network.backbone: widths[0]: got 0, need a number >= 1"),
])
def test_a_cnn_that_is_no_mapping_or_has_a_stage_of_no_width(vsetune, study, backbone, said) -> None:
    network = {"name": "vsepp", "fixed": {"image_input": "pixels", "backbone": backbone}}
    assert_refused(vsetune(*VALIDATE, str(study(networks=[network]))), said)


def test_weights_of_a_cnn_that_are_not_there_are_told_by_validate(vsetune, study, home) -> None:
    make(vsetune, home / "data" / "scenes")
    cnn = {"model": "vgg19", "weights": "/nowhere/vgg19.pth"}
    network = {"name": "vsepp", "fixed": {"image_input": "pixels", "backbone": cnn}}
    said = vsetune(*VALIDATE, str(study(networks=[network])))
    assert_refused(said, "cell vsepp.lmh: network.backbone.weights: /nowhere/vgg19.pth: no such file")


@pytest.mark.parametrize("command", ["train", "study"])
def test_a_home_that_cannot_be_written_is_told_in_words_of_a_study(
    command, vsetune, study, home, monkeypatch
) -> None:
    (home / "file").touch()
    monkeypatch.setenv("VSETUNE_HOME", str(home / "file" / "home"))
    said = vsetune(*(("study", "run") if command == "study" else ("train",)), str(study()))
    assert_refused(said, "data.scenes: ", "cannot write (Not a directory)", "set VSETUNE_HOME, or data.path")
    assert "output:" not in said.err


def test_a_missing_data_folder(vsetune, study, home) -> None:
    said = vsetune("train", str(study(data={"path": "data/nothing"})))
    assert_refused(said, "data/nothing", "vsetune data")
    assert not (home / "runs").exists()


def test_a_missing_study_file(vsetune, tmp_path) -> None:
    assert_refused(vsetune(*VALIDATE, str(tmp_path / "none.yaml")), "none.yaml: no such file")


@pytest.mark.parametrize("words", [
    ("data", "show", "data/scenes", "--sheet"),
    *(("leaderboard", "export", "tiny", f"--{kind}") for kind in (
        "html", "csv", "json", "markdown", "curves", "latex", "profile",
    )),
    ("leaderboard", "repeat", "tiny/vsepp.lmh", "--output"),
    ("losses", "new", "my_own", "--folder"),
    ("networks", "import", "--from", "vsepp", "weights.pth", "--output"),
    ("networks", "new", "my_own", "--folder"),
    ("nightly", "install", "nightly.yaml", "--as", "cron", "--output"),
    ("study", "explain", "tiny", "--output"),
    ("tracking", "export", "tiny", "--to"),
    ("trial", "curves", "tiny/vsepp.lmh-c000-s0", "--output"),
    ("trial", "gallery", "tiny/vsepp.lmh-c000-s0", "--output"),
])
def test_an_address_is_no_place_to_write(vsetune, words, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = vsetune(*words, "s3://bucket/board.svg")
    assert_refused(said, f"error {words[-1]}: got s3://bucket/board.svg, need a place on this machine")
    assert not Path("s3:").exists()


def test_a_caption_without_an_image_and_an_unreadable_image(vsetune, tmp_path, home) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "captions.csv").write_text("image,caption\na.jpg,A dog .\nb.jpg,A cat .\n")
    (tmp_path / "images" / "a.jpg").write_bytes(b"this is no image")
    for split, name in (("train", "a.jpg"), ("validation", "b.jpg")):
        (tmp_path / f"{split}.txt").write_text(name + "\n")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({
        "name": "pets", "output": "data/pets", "features": {"extractor": "pixels"},
        "source": {
            "layout": "caption_table", "captions": str(tmp_path / "captions.csv"),
            "images": [str(tmp_path / "images")],
            "lists": {split: str(tmp_path / f"{split}.txt") for split in ("train", "validation")},
        },
    }))
    assert_refused(vsetune("data", "ingest", str(recipe)), "b.jpg")
    (tmp_path / "images" / "b.jpg").write_bytes(b"nor is this")
    said = vsetune("data", "ingest", str(recipe))
    assert said.code == 2
    assert "a.jpg" in said.err
    assert not (home / "data" / "pets").exists()
    recipe.write_text(recipe.read_text() + "on_unreadable: skip\n")
    said = vsetune("data", "ingest", str(recipe))
    assert said.code == 2, "all images are unreadable, but the folder is free for the mended recipe"
    assert "every image was skipped" in said.err


def test_an_ingest_that_had_ended_before_does_not_claim_to_have_written_anything(vsetune, tmp_path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({
        "name": "pets", "output": "data/pets", "features": {"extractor": "pixels", "grid": 1},
        "source": {"layout": "scenes", "train": 2, "validation": 1, "test": 0},
    }))
    assert "written: " in vsetune("data", "ingest", str(recipe)).err
    said = vsetune("data", "ingest", str(recipe))
    assert said.code == 0
    assert "written: " not in said.err
    assert "its source was not read again; if captions" in said.err


def test_what_an_ingest_notes_is_said_once(vsetune, tmp_path, caplog) -> None:
    """By the command that makes it, and by one that finds it made; what is logged goes to stderr as well."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({
        "name": "pets", "output": "data/pets", "features": {"extractor": "pixels", "grid": 1},
        "source": {"layout": "scenes", "train": 2, "validation": 1, "test": 0}, "vocabulary_min_count": 1000,
    }))
    for _ in range(2):
        caplog.clear()
        said = vsetune("data", "ingest", str(recipe)).err + caplog.text
        assert said.count("words of the train captions stand there fewer than 1000 times") == 1, said


def test_what_making_scenes_notes_is_said_once(vsetune, study, caplog) -> None:
    made = vsetune("data", "make-scenes", "--train", "1", "--validation", "1", "--test", "1")
    assert (made.err + caplog.text).count("words of the train captions stand there fewer than 4 times") == 1, made


@pytest.mark.parametrize("damage", ["truncated", "tampered"])
def test_a_damaged_shard(damage: str, vsetune, study, home) -> None:
    make(vsetune, home / "data" / "scenes" / "manifest.json")
    shard = home / "data" / "scenes" / "train-000000.tar"
    content = bytearray(shard.read_bytes())
    if damage == "truncated":
        del content[len(content) // 2:]
    else:
        content[len(content) // 3] ^= 0xFF
    shard.write_bytes(content)
    assert_refused(vsetune("train", str(study())), "train-000000.tar", "ingest")
    said = vsetune("data", "verify", "data/scenes")
    assert said.code == 2
    assert said.out.startswith(f"error {shard}: ")
    assert "data verify" not in said.out


def test_features_that_do_not_fit_the_network(vsetune, study) -> None:
    said = vsetune("train", str(study(networks=[{"name": "vsepp", "fixed": {"image_input": "global"}}])))
    assert said.code == 2
    assert said.lines[-1].count("image_input") == 1
    assert "36" in said.lines[-1]


def test_flatten_needs_the_same_number_of_regions_everywhere(vsetune, study, home) -> None:
    manifest = home / "data" / "scenes" / "manifest.json"
    make(vsetune, manifest)
    manifest.write_text(manifest.read_text().replace('"regions_min": 36', '"regions_min": 10'))
    flat = study(networks=[{"name": "vsepp", "fixed": {"image_input": "flatten"}}], data={"path": "data/scenes"})
    assert_refused(vsetune("train", str(flat)), "cell vsepp.lmh: network.image_input: flatten", "10 to 36", "use mean")


def test_a_network_that_reads_boxes_needs_them_or_a_square_grid(vsetune, study, home) -> None:
    manifest = home / "data" / "scenes" / "manifest.json"
    make(vsetune, manifest)
    manifest.write_text(manifest.read_text().replace('"regions_min": 36', '"regions_min": 10'))
    boxes = study(networks=[{"name": "gsmn"}], data={"path": "data/scenes"})
    assert_refused(
        vsetune("train", str(boxes)), "cell gsmn.lmh: network gsmn needs the boxes of regions, or a square grid",
        "10 to 36 regions without boxes", "ingest it with boxes",
    )


def test_every_cell_that_does_not_fit_the_data_is_told_at_once(vsetune, study, home) -> None:
    make(vsetune, home / "data" / "scenes" / "manifest.json")
    networks = [
        {"name": "vsepp", "fixed": {"image_input": "global"}},
        {"name": "vse_infinity", "training": {"batch_unit": "images"}},
    ]
    losses = [{"name": "lmh"}, {"name": "info_nce"}]
    said = vsetune("train", str(study(networks=networks, losses=losses)))
    assert said.code == 2
    assert len(said.lines) == 4, said.err
    assert sum("image_input" in line for line in said.lines) == 2
    assert sum("use at most 24" in line for line in said.lines) == 2
    assert not (home / "runs").exists()


def test_scenes_are_not_made_at_a_remote_place(vsetune, study, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = {"train": 24, "validation": 8, "test": 8}
    said = vsetune("train", str(study(data={"path": "s3://bucket/x", "scenes": sizes})))
    assert_refused(said, "data.scenes: can only be made in a local folder", "s3://bucket/x")
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"]


def test_a_test_split_that_the_file_names_must_be_there(vsetune, study) -> None:
    sizes = {"train": 24, "validation": 8, "test": 8}
    said = vsetune("train", str(study(data={"path": "data/scenes", "scenes": sizes, "test_split": "tset"})))
    assert said.code == 2
    assert "data.test_split" in said.lines[-1]


def test_a_batch_larger_than_the_split(vsetune, study) -> None:
    said = vsetune("train", str(study(training={"epochs": 1, "batch_size": 500})))
    assert said.code == 2
    assert "training.batch_size: got 500" in said.lines[-1]
    assert "use at most 120" in said.lines[-1]


def test_an_empty_split(vsetune, study) -> None:
    sizes = {"train": 24, "validation": 8, "test": 8}
    said = vsetune("train", str(study(data={"path": "data/scenes", "scenes": sizes, "validation_split": "dev"})))
    assert said.code == 2
    assert "data.validation_split" in said.lines[-1]
    assert "dev" in said.lines[-1]


def test_other_scenes_in_the_folder(vsetune, study) -> None:
    assert vsetune("data", "make-scenes", "--train", "12", "--validation", "8", "--test", "8").code == 0
    assert_refused(vsetune("train", str(study())), "data.scenes", "name another")


def test_a_folder_that_cannot_be_written(vsetune, study, tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path / "file"))
    said = vsetune("train", str(study()))
    assert said.code == 2
    assert "Traceback" not in said.err


def test_no_space_left_names_the_place_and_leaves_nothing(vsetune, study, home, monkeypatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    said = vsetune("train", str(study()))
    assert said.code == 2
    assert "No space left on device" in said.lines[-1]
    assert str(home) in said.lines[-1]
    assert not list(home.rglob("manifest.json"))


def test_a_leaderboard_of_an_unknown_study_creates_nothing(vsetune, home) -> None:
    assert_refused(vsetune("leaderboard", "show", "nothing"))
    assert not (home / "mlflow.db").exists()


def test_an_unreachable_tracking_server(vsetune) -> None:
    said = vsetune("tracking", "import", "x", "--tracking-uri", "http://127.0.0.1:9")
    assert_refused(said, "127.0.0.1:9")


def test_all_problems_of_a_file_are_listed_one_line_each(vsetune, study) -> None:
    said = vsetune(*VALIDATE, str(study(training={"epochs": -1, "batch_size": 1}, seeds=[])))
    assert said.code == 2
    assert len(said.lines) == 3


def test_validate_json_is_one_document(vsetune, study) -> None:
    said = vsetune(*VALIDATE, str(study()), "--json")
    assert said.code == 0
    assert [cell["cell"] for cell in json.loads(said.out)] == ["vsepp.lmh"]
