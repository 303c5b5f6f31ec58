"""`vsetune networks evaluate`, and a study that starts from what `networks import` wrote."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import yaml
from coco_files import caption_number, image_number, write_all_cxc, write_captions, write_eccv
from torch import nn

from vsetune.config.sources.recipe import IngestRecipe
from vsetune.data.making.ingest import ingest
from vsetune.data.progress import SilentProgress
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.shards import split_records


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("data") / "scenes")
    _make_scenes(path, train=24, seed=0, grid=1, features={"width": 8})
    return path


@pytest.fixture
def weights(vsetune: Callable[..., Any], data: str, tmp_path: Path) -> Path:
    """An untrained VSE++ of the width of the data, its vocabulary in another order, brought in."""
    dataset = Dataset.open(data)
    words = ["<pad>", "<start>", "<end>", "<unk>", *reversed(dataset.vocabulary.words[5:])]
    torch.manual_seed(0)
    states = [
        nn.Linear(dataset.width, 8).state_dict(prefix="fc."),
        {
            **nn.Embedding(len(words), 5).state_dict(prefix="embed."),
            **nn.GRU(5, 8, batch_first=True).state_dict(prefix="rnn."),
        },
    ]
    torch.save({"model": states}, tmp_path / "model_best.pth.tar")
    (tmp_path / "vocab.json").write_text(json.dumps({"word2idx": {word: number for number, word in enumerate(words)}}))
    said = vsetune(
        "networks", "import", "--from", "vsepp", "--words", str(tmp_path / "vocab.json"),
        str(tmp_path / "model_best.pth.tar"),
    )
    assert said.code == 0, said
    return tmp_path / "model_best-vsetune" / "weights.safetensors"


def test_evaluate_prints_recalls_and_how_many_words_are_known(vsetune, weights, data, home) -> None:
    said = vsetune("networks", "evaluate", str(weights), data, "--device", "cpu")
    assert said.code == 0, said
    assert "recalls on test, per cent" in said.out
    assert "vsepp (vsepp)" in said.out
    count = len(Dataset.open(data).vocabulary) - 5
    assert f"{count} of {count} words of {data} are known to the weights" in said.err
    (home / "data").mkdir(parents=True)
    (home / "data" / "scenes").symlink_to(data)
    assert "words of data/scenes" in vsetune("networks", "evaluate", str(weights), "data/scenes", "--device", "cpu").err
    found = _scored(vsetune, str(weights), data, "--split", "validation")
    assert (found["network"], found["split"], found["data"]) == ("vsepp", "validation", "scenes")
    assert found["words"]["found"] == found["words"]["of"] > 10
    assert 0 <= found["m_recall"] <= 100


def test_evaluate_scores_by_published_judgements(vsetune, weights, data, tmp_path) -> None:
    dataset = Dataset.open(data)
    captions = write_captions(tmp_path, dataset, "test")
    write_eccv(tmp_path, {image_number(1): [caption_number(0)]}, {caption_number(3): [image_number(0)]})
    name, other = [record.image_id for _, record in split_records(dataset, "test")][:2]
    cxc = write_all_cxc(
        tmp_path, [(caption_number(0), name, 5.0)], [(caption_number(0), caption_number(9), 3.0)], [(name, other, 2.5)]
    )
    judged = ("--eccv-caption", str(tmp_path), "--cxc", cxc)
    found = _scored(vsetune, str(weights), data, "--coco-captions", captions, *judged)
    assert {"eccv_i2t_map_at_r", "eccv_t2i_r_precision", "eccv_t2i_r1", "cxc_i2t_r1", "cxc_t2i_r10"} <= set(found)
    assert {"cxc_t2t_r1", "cxc_i2i_r10"} <= set(found)
    said = vsetune("networks", "evaluate", str(weights), data, "--device", "cpu", "--coco-captions", captions, *judged)
    assert f"eccv_i2t_map_at_r {found['eccv_i2t_map_at_r']:.1f}" in " ".join(said.out.split())
    said = vsetune("networks", "evaluate", str(weights), data, "--device", "cpu", *judged)
    assert said.code == 2
    assert said.err.startswith("error VSE-X141: ")
    said = vsetune(
        "networks", "evaluate", str(weights), data, "--device", "cpu", "--split", "validation",
        "--coco-captions", captions, *judged,
    )
    assert (said.code, said.err.count("error ")) == (2, 1)


def test_evaluate_refuses_in_one_line(vsetune, weights, data, tmp_path) -> None:
    (tmp_path / "none.safetensors").write_bytes(b"text")
    for words, said in {
        (str(weights), data, "--split", "tset"): ("tset", "test, train, validation"),
        (str(weights), str(tmp_path / "gone")): (f"{tmp_path}/gone: ",),
        (str(tmp_path / "gone.safetensors"), data): ("gone.safetensors: ",),
        (str(tmp_path / "none.safetensors"), data): ("none.safetensors: ",),
    }.items():
        assert vsetune("networks", "evaluate", *words).refused(*said)


def test_recalls_of_a_changed_shard_are_refused(vsetune, weights, data) -> None:
    shard = Path(data, "test-000000.tar")
    whole = shard.read_bytes()
    shard.write_bytes(whole.replace(b"triangle", b"rectanle"))
    said = vsetune("networks", "evaluate", str(weights), data, "--device", "cpu")
    shard.write_bytes(whole)
    assert said.refused(f"{shard}: ", "SHA-256")


def test_the_entry_names_the_weights_and_a_study_with_it_is_valid(vsetune, weights, data, study) -> None:
    networks = yaml.safe_load((weights.parent / "network.yaml").read_text())["networks"]
    assert networks[0]["fixed"]["start_from"] == str(weights.absolute())
    file = study(networks=networks, data={"path": data})
    said = vsetune("study", "validate", str(file))
    assert said.code == 0, said


def test_a_study_whose_start_is_missing_or_does_not_fit_is_refused_before_it_runs(
    vsetune, weights, data, study
) -> None:
    entry = {"name": "vsepp", "fixed": {"embedding_size": 9, "word_size": 5, "start_from": str(weights)}}
    file = study(networks=[entry], data={"path": data})
    for command in (("study", "validate", str(file)), ("train", str(file))):
        said = vsetune(*command)
        assert said.refused(f"network.start_from: {weights}: ", "network vsepp", "gru.bias_hh_l0", "(24,)", "(27,)")
    weights.unlink()
    assert vsetune("study", "validate", str(file)).refused(f"network.start_from: {weights}: ")


def test_weights_imported_without_words_say_so_and_name_no_start(vsetune, weights, data, tmp_path) -> None:
    said = vsetune(
        "networks", "import", "--from", "vsepp", str(tmp_path / "model_best.pth.tar"), "--output", str(tmp_path / "b")
    )
    assert said.code == 0
    assert "start_from" not in yaml.safe_load(said.out)["networks"][0]["fixed"]
    assert "# import again with --words VOCABULARY" in said.out
    assert "until imported again with --words" in said.err
    assert vsetune("networks", "evaluate", str(tmp_path / "b" / "weights.safetensors"), data).refused("--words")


def test_import_refuses_another_vocabulary_and_writes_nothing(vsetune, weights, tmp_path) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps({"word2idx": {"<pad>": 0, "<start>": 1, "<end>": 2, "<unk>": 3}}))
    said = vsetune(
        "networks", "import", "--from", "vsepp", "--words", str(tmp_path / "vocab.json"),
        str(tmp_path / "model_best.pth.tar"), "--output", str(tmp_path / "b"),
    )
    assert said.refused("vocab.json: ", "4")
    assert not (tmp_path / "b").exists()


def _scored(vsetune: Callable[..., Any], *words: str) -> dict[str, Any]:
    said = vsetune("networks", "evaluate", *words, "--device", "cpu", "--json")
    assert said.code == 0, said
    found: dict[str, Any] = json.loads(said.out)
    return found


def test_a_trial_is_scored_by_name_or_by_its_file_as_it_was_when_it_ended(vsetune, record, home, tmp_path) -> None:
    run = record()
    summary = json.loads(vsetune("trial", "show", run, "--json").out)["summary"]
    alone = tmp_path / "alone.safetensors"
    shutil.copy(home / "runs" / "tiny" / "trials" / "vsepp.lmh-c000-s0" / "best.safetensors", alone)
    for named in ("tiny/vsepp.lmh-c000-s0", run, str(alone)):
        found = _scored(vsetune, named, "data/scenes")
        assert (found["network"], found["source"]) == ("vsepp", "tiny/vsepp.lmh-c000-s0")
        names = [name for name in found if f"test_{name}" in summary]
        assert "m_recall" in names
        assert {name: found[name] for name in names} == {name: summary[f"test_{name}"] for name in names}


def test_a_trial_is_scored_on_other_data_by_the_words_that_it_was_trained_with(vsetune, record, home, tmp_path) -> None:
    """The other data set has other words, ids and images; the first one is gone by then."""
    record()
    other = str(tmp_path / "other")
    _make_scenes(other, train=16, seed=7, grid=6)
    (home / "data" / "scenes").rename(tmp_path / "away")
    name = "tiny/vsepp.lmh-c000-s0"
    found = _scored(vsetune, name, other, "--split", "validation")
    words = Dataset.open(str(tmp_path / "away")).vocabulary.words
    known = set(words) & set(Dataset.open(other).vocabulary.words[5:])
    assert found["words"]["found"] == len(known)
    assert found["m_recall"] == _scored(vsetune, name, other, "--split", "validation")["m_recall"]
    _make_scenes(str(tmp_path / "cells"), train=16, seed=7, grid=2)
    said = vsetune("networks", "evaluate", name, str(tmp_path / "cells"))  # a mean of other cells is a vector like it
    assert said.code == 0, said


def test_a_trial_that_cannot_read_a_data_set_is_refused_in_one_line(vsetune, record, data, tmp_path) -> None:
    record({"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8, "image_input": "flatten"}})
    _make_scenes(str(tmp_path / "cells"), train=16, seed=7, grid=2)
    for words, said in {
        ("tiny/vsepp.lmh-c000-s0", data): "256", ("tiny/vsepp.lmh-c000-s0", str(tmp_path / "cells")): "36",
        ("tiny/vsepp.lmh-c000-s0", "data/scenes", "--split", "tset"): "tset",
        ("tiny/vsepp.lmh-c001-s0", "data/scenes"): "vsepp.lmh-c001-s0",
    }.items():
        assert vsetune("networks", "evaluate", *words).refused(said)


def test_features_that_were_made_otherwise_are_a_warning(vsetune, record, tmp_path) -> None:
    record()
    _make_scenes(str(tmp_path / "drawn"), train=16, seed=7, grid=6, features={"seed": 3})
    said = vsetune("networks", "evaluate", "tiny/vsepp.lmh-c000-s0", str(tmp_path / "drawn"))
    assert said.code == 0
    (line,) = [line for line in said.lines if line.startswith("warning VSE-X046: ")]
    assert line.index("extractor pixels seed 3") < line.index("extractor pixels seed 0")


def test_weights_of_an_earlier_version_are_scored_by_the_name_of_their_trial_alone(
    vsetune, record, home, tmp_path
) -> None:
    run = record(keep=False)
    best = home / "runs" / "tiny" / "trials" / "vsepp.lmh-c000-s0" / "best.safetensors"
    new = _scored(vsetune, run, "data/scenes")
    safetensors.torch.save_file(safetensors.torch.load_file(best), best)
    assert _scored(vsetune, "tiny/vsepp.lmh-c000-s0", "data/scenes") == new | {"weights": "tiny/vsepp.lmh-c000-s0"}
    assert vsetune("networks", "evaluate", str(best), "data/scenes").refused("best.safetensors")


def _make_scenes(path: str, *, train: int, seed: int, grid: int, features: dict[str, int] | None = None) -> None:
    recipe = IngestRecipe.model_validate({
        "name": "scenes", "output": path, "features": {"extractor": "pixels", "grid": grid} | (features or {}),
        "source": {"layout": "scenes", "train": train, "validation": 8, "test": 8, "seed": seed},
    })
    ingest(recipe, progress=SilentProgress())
