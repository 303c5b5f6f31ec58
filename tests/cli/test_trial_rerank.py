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
from vsetune.training.attempt import TrainingAttempt

__all__ = ["bucket"]
pytestmark = pytest.mark.filterwarnings("default")  # MLflow and boto3 warn about themselves

SMALL = {"embedding_size": 16, "word_size": 8}
SCAN = {"name": "scan", "fixed": SMALL}
FIRST, BAG = "tiny/vsepp.lmh-c000-s0", "tiny/bag.lmh-c000-s0"
RERANK = {"first": FIRST, "top": 2}


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
    for words in (("rerank", one, two, "--top", "2"), ("ensemble", one, other), ("gallery", one)):
        assert vsetune("trial", *words).refused(f"{shard}: ", "SHA-256")


def test_runs_that_cannot_be_two_stages_are_refused_in_one_line(vsetune, record, tmp_path) -> None:
    one, two = record(), record(SCAN, name="pairs")
    assert vsetune("trial", "rerank", "tiny/no-such", two).refused("no-such")
    assert vsetune("trial", "rerank", two, two).refused("VSE-X045", two, "network scan", "first stage")
    assert vsetune("trial", "rerank", one, one).refused("VSE-X045", one, "network vsepp", "second stage")
    assert vsetune("trial", "rerank", one, two, "--top", "9").refused("top", "9", "8 images")
    assert vsetune("trial", "rerank", one, two, "--top", "0").refused("VSE-X001", "--top")
    made = vsetune("data", "make-scenes", "--output", "data/more", "--train", "30", "--validation", "8", "--test", "8")
    assert made.code == 0
    other = record(name="more", data={"path": "data/more"})
    assert vsetune("trial", "rerank", other, two).refused("VSE-X040", "trial rerank: ", other, two)


def prepared_of(path: Path) -> PreparedStudy:
    return prepare_study(path, Console(file=io.StringIO()))


def trained(prepared: PreparedStudy) -> dict[str, float]:
    """The first trial of a study, as a worker trains it."""
    (cell,) = prepared.cells
    trial = build_trial(prepared.spec, cell, cell.defaults(), trial=f"{cell.name}-c000-s0", seed=0)
    folder = prepared.trial_folder(trial.trial)
    attempt = TrainingAttempt(trial, folder, device="cpu", threads=1, first_stage=kept_stage(trial, folder))
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
    with pytest.raises(StorageError, match=STAGES_FOLDER):
        trained(again)
    shutil.rmtree(home / STAGES_FOLDER)
    with pytest.raises(StorageError, match=STAGES_FOLDER):
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
    with pytest.raises(ConfigError, match="content"):
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
    assert said(first="tinny/x").refused("study.yaml: evaluation.rerank.first: ", "study tinny")
    assert said(first="tiny/x").refused("study.yaml: evaluation.rerank.first: ", "x")
    assert said(first="pairs/scan.lmh-c000-s0").refused("evaluation.rerank.first", "scan")
    assert said(top=9).refused("study.yaml: evaluation.rerank.top: ", "9", "8")
    assert said(top=0).refused("study.yaml: evaluation.rerank.top: ", "0")
    assert said(network={"name": "vsepp", "fixed": SMALL}).refused("cell vsepp.lmh: evaluation.rerank", "vsepp")
    made = vsetune("data", "make-scenes", "--output", "data/more", "--train", "40", "--validation", "8", "--test", "8")
    assert made.code == 0
    data = {"path": "data/scenes", "scenes": {"train": 24, "validation": 8, "test": 8}, "test_split": None}
    for changes, words in (
        ({"data": {"path": "data/more"}, "evaluation": {"rerank": RERANK}}, ["evaluation.rerank.first"]),
        ({"evaluation": {"validation_images": 9}}, ["evaluation.validation_images: ", "9", "8"]),
        ({"data": data, "evaluation": {"validation_images": 4, "srd_at": [1]}}, ["evaluation.srd_at: ", "4 images"]),
    ):
        assert vsetune("study", "validate", str(study(networks=[SCAN], **changes))).refused(*words)
