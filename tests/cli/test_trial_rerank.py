"""Re-ranking recorded trials, and studies that re-rank. The attempts are trained here, in this process, without Ray."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from mock_bucket import bucket
from plugin_folders import write_network
from rich.console import Console

from vsetune.config.plugins import forget_plugins, known_plugins
from vsetune.config.spec.loading import dump_yaml
from vsetune.config.study.cells import build_trial, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import ConfigError, StorageError
from vsetune.records.log import LOG_FILE, OBJECTS
from vsetune.records.studies import Studies
from vsetune.study.first_stages import STAGES_FOLDER, StageSearch, kept_stage, plugins_of_stage, with_first_stage
from vsetune.study.kept_plugins import keep_plugins
from vsetune.study.preparation import PreparedStudy, prepare_study
from vsetune.training.attempt import Attempt

__all__ = ["bucket"]
pytestmark = pytest.mark.filterwarnings("default")  # MLflow and boto3 warn about themselves

SMALL = {"embedding_size": 16, "word_size": 8}
SCAN = {"name": "scan", "fixed": SMALL}
FIRST, BAG = "tiny/vsepp.lmh-c000-s0", "tiny/bag.lmh-c000-s0"
RERANK = {"first": FIRST, "top": 2}


def assert_one_line(said: Any, *words: str) -> None:
    assert said.code == 2, said
    assert len(said.lines) == 1, said.err
    assert said.lines[0].startswith("error ")
    for word in words:
        assert word in said.lines[0], said.err


def test_both_stages_are_printed_beside_each_other(vsetune, record) -> None:
    record()
    record(SCAN, name="pairs")
    runs = [FIRST, "pairs/scan.lmh-c000-s0"]
    said = vsetune("trial", "rerank", *runs, "--top", "2", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert (found["split"], found["top"], found["pairs"]) == ("test", 2, 8 * 40)
    assert [found[stage]["trial"] for stage in ("first", "reranked")] == runs
    shown = [json.loads(vsetune("trial", "show", run, "--json").out)["summary"] for run in runs]
    assert found["first"]["m_recall"] == pytest.approx(shown[0]["test_m_recall"])
    assert found["proposed_pairs"] < 8 * 40
    whole = json.loads(vsetune("trial", "rerank", *runs, "--top", "8", "--json").out)
    assert whole["reranked"]["m_recall"] == pytest.approx(shown[1]["test_m_recall"])
    said = vsetune("trial", "rerank", *runs, "--top", "8", "--split", "validation")
    assert "recalls on validation" in said.out
    assert "re-ranked by pairs/scan.lmh-c000-s0" in said.out
    assert "320 of 320 pairs scored (100.0%)" in said.err


def test_nothing_is_scored_on_a_changed_shard(vsetune, record, home) -> None:
    one, other, two = record(), record(seed=1), record(SCAN, name="pairs")
    shard = home / "data" / "scenes" / "test-000000.tar"
    content = bytearray(shard.read_bytes())
    content[len(content) // 3] ^= 0xFF
    shard.write_bytes(content)
    damage = f"{shard}: damaged shard (its SHA-256 is not the one of the manifest; changed)"
    assert_one_line(vsetune("trial", "rerank", one, two, "--top", "2"), damage)
    assert_one_line(vsetune("trial", "ensemble", one, other), damage)
    assert_one_line(vsetune("trial", "gallery", one), damage)


def test_runs_that_cannot_be_two_stages_are_refused_in_one_line(vsetune, record, tmp_path) -> None:
    one, two = record(), record(SCAN, name="pairs")
    assert_one_line(vsetune("trial", "rerank", "tiny/no-such", two), "no trial is called no-such")
    assert_one_line(vsetune("trial", "rerank", two, two), "network scan, which scores pairs", "need a first stage")
    assert_one_line(vsetune("trial", "rerank", one, one), "network vsepp, which embeds", "need a second stage")
    assert_one_line(vsetune("trial", "rerank", one, two, "--top", "9"), "got top 9, need 1 to the 8 images")
    assert vsetune("trial", "rerank", one, two, "--top", "0").code == 2
    made = vsetune("data", "make-scenes", "--output", "data/more", "--train", "30", "--validation", "8", "--test", "8")
    assert made.code == 0
    other = record(name="more", data={"path": "data/more"})
    assert_one_line(vsetune("trial", "rerank", other, two), "need both of the same data set")


def prepared_of(path: Path) -> PreparedStudy:
    return prepare_study(path, Console(file=io.StringIO()))


def trained(prepared: PreparedStudy) -> dict[str, float]:
    """The first trial of a study, as a worker trains it."""
    (cell,) = prepared.cells
    trial = build_trial(prepared.spec, cell, cell.defaults(), trial=f"{cell.name}-c000-s0", seed=0)
    folder = prepared.trial_folder(trial.trial)
    attempt = Attempt(trial, folder, device="cpu", threads=1, first_stage=kept_stage(trial, folder))
    while not attempt.is_finished:
        attempt.advance()
    return attempt.finish()


def test_a_study_keeps_the_first_stage_that_it_began_with_whatever_becomes_of_the_trial(record, study, home) -> None:
    record()
    path = study(study="both", networks=[SCAN], evaluation={"rerank": RERANK})
    begun = prepared_of(path)
    summary = trained(begun)
    assert summary["test_first_stage_m_recall"] >= 0
    (begun.folder / "study.yaml").write_text(dump_yaml(begun.spec.to_plain()))
    shutil.rmtree(home / "runs" / "tiny")
    again = prepared_of(path)
    assert again.record().fingerprint == begun.record().fingerprint
    shutil.rmtree(again.folder / "trials")
    assert trained(again)["test_m_recall"] == summary["test_m_recall"]
    (kept,) = (home / STAGES_FOLDER).glob("*/best.safetensors")
    kept.write_bytes(b"changed")
    with pytest.raises(StorageError, match="differs from what was stored there"):
        trained(again)
    shutil.rmtree(home / STAGES_FOLDER)
    with pytest.raises(StorageError, match="start the study again"):
        trained(again)


def test_other_weights_under_the_same_name_are_another_study(record, study, home) -> None:
    record()
    record(name="other", seed=1)
    path = study(study="both", networks=[SCAN], evaluation={"rerank": RERANK})
    begun = prepared_of(path)
    own, foreign = (next((home / "runs" / name).rglob("best.safetensors")) for name in ("tiny", "other"))
    shutil.copy(foreign, own)
    assert prepared_of(path).record().fingerprint != begun.record().fingerprint
    named = begun.spec.evaluation.to_plain()
    assert prepared_of(study(study="both", networks=[SCAN], evaluation=named)).record() == begun.record()
    shutil.rmtree(home / STAGES_FOLDER)
    with pytest.raises(ConfigError, match="the file says content"):
        prepared_of(path)


def test_a_first_stage_of_somebodys_own_code_runs_that_very_code(record, study, home, tmp_path) -> None:
    own = {"plugins": [str(write_network(tmp_path / "bag"))]}
    record({"name": "bag", "fixed": {"embedding_size": 16}}, **own)
    keep_plugins(known_plugins(), home / "runs" / "tiny")
    shutil.rmtree(tmp_path / "bag")
    forget_plugins()
    begun = prepared_of(study(study="both", networks=[SCAN], evaluation={"rerank": RERANK | {"first": BAG}}))
    keep_plugins(plugins_of_stage(begun.spec, begun.folder), begun.folder)
    forget_plugins()
    shutil.rmtree(home / "runs" / "tiny")
    assert trained(begun)["test_first_stage_m_recall"] >= 0
    forget_plugins()


def test_a_worker_without_the_disk_of_the_driver_finds_the_first_stage(
    record, study, home, bucket, monkeypatch, tmp_path
) -> None:
    record()
    path = study(study="both", networks=[SCAN], evaluation={"rerank": RERANK})
    monkeypatch.setenv("VSETUNE_HOME", "s3://data/home")
    monkeypatch.setenv("VSETUNE_NODE_FOLDER", str(home))
    log = (home / "runs" / "tiny" / LOG_FILE).read_bytes()
    bucket.put_object(Bucket="data", Key=f"home/runs/tiny/{OBJECTS}/00000000", Body=log)
    spec = StudySpec.model_validate(yaml.safe_load(path.read_text()))
    dataset = Dataset.open(str(home / "data" / "scenes"))
    made = with_first_stage(StageSearch(spec, dataset, home / "runs" / "both", Studies, str(path)))
    monkeypatch.setenv("VSETUNE_NODE_FOLDER", str(tmp_path / "node"))
    (cell,) = resolve_cells(made, where=str(path))
    trial = build_trial(made, cell, cell.defaults(), trial="t", seed=0)
    stage = kept_stage(trial, tmp_path / "node" / "runs" / "both" / "trials" / "t")
    assert stage is not None
    assert stage.weights.is_relative_to(tmp_path / "node" / STAGES_FOLDER)
    best = home / "runs" / "tiny" / "trials" / "vsepp.lmh-c000-s0" / "best.safetensors"
    assert stage.weights.read_bytes() == best.read_bytes()


def test_a_study_whose_first_stage_cannot_be_one_is_refused_in_one_line(vsetune, record, study) -> None:
    record()
    record(SCAN, name="pairs")

    def said(*, network: Any = SCAN, **rerank: Any) -> Any:
        path = study(study="both", networks=[network], evaluation={"rerank": RERANK | rerank})
        return vsetune("study", "validate", str(path))

    assert said().code == 0
    assert_one_line(said(first="tinny/x"), "study.yaml: evaluation.rerank.first: ", "study tinny", "which has:")
    assert_one_line(said(first="tiny/x"), "study.yaml: evaluation.rerank.first: ", "no trial is called x")
    assert_one_line(said(first="pairs/scan.lmh-c000-s0"), "evaluation.rerank.first", "scan, which scores pairs")
    assert_one_line(said(top=9), "study.yaml: evaluation.rerank.top: got 9", "use at most 8")
    assert_one_line(said(top=0), "study.yaml: evaluation.rerank.top: got 0")
    embeds = {"name": "vsepp", "fixed": SMALL}
    assert_one_line(said(network=embeds), "cell vsepp.lmh: evaluation.rerank", "vsepp embeds")
    assert vsetune(
        "data", "make-scenes", "--output", "data/more", "--train", "40", "--validation", "8", "--test", "8"
    ).code == 0
    path = study(study="both", networks=[SCAN], data={"path": "data/more"}, evaluation={"rerank": RERANK})
    assert_one_line(vsetune("study", "validate", str(path)), "evaluation.rerank.first", "was trained on other data")
    path = study(networks=[SCAN], evaluation={"validation_images": 9})
    assert_one_line(vsetune("study", "validate", str(path)), "evaluation.validation_images: got 9", "use at most 8")
    data = {"path": "data/scenes", "scenes": {"train": 24, "validation": 8, "test": 8}, "test_split": None}
    path = study(networks=[SCAN], data=data, evaluation={"validation_images": 4, "srd_at": [1]})
    assert_one_line(vsetune("study", "validate", str(path)), "evaluation.srd_at: needs a whole split", "4 images")
