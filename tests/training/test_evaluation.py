"""What the best checkpoint is scored by at the end of a trial."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_files import caption_number, image_number, write_all_cxc, write_captions, write_eccv
from trained_here import CPU, fresh_network, train

from vsetune.board.seed_results import CXC, CXC_AMONG, ECCV
from vsetune.config.study.training import TrialSpec
from vsetune.data.captions import semantic_sources
from vsetune.data.stored.dataset import Dataset, evaluated_split
from vsetune.data.stored.manifest import VOCABULARY_FILE
from vsetune.data.stored.shards import split_records
from vsetune.home.hashes import sha256_hex
from vsetune.metrics.recalls import RankingProtocol
from vsetune.networks.network_base import evaluating
from vsetune.training import evaluation
from vsetune.training.evaluation import evaluate
from vsetune.training.validation import encode_split


@pytest.fixture
def no_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors by caption number instead of a model: captions of the same image are alike."""

    def vectors(dataset: Dataset, spec: Any, *, split: str, **_: Any) -> np.ndarray:
        rng = np.random.default_rng(0)
        per_image = rng.normal(size=(dataset.split(split).images, 4))
        return np.repeat(per_image, 2, axis=0).astype(np.float32)

    monkeypatch.setattr(semantic_sources, "encoder_vectors", vectors)
    monkeypatch.setattr(semantic_sources, "encoder_identity", lambda spec: "tiny-1")


def with_evaluation(trial: TrialSpec, **wanted: Any) -> TrialSpec:
    return TrialSpec.model_validate(trial.to_plain() | {"evaluation": wanted})


def numbers(trial: TrialSpec) -> dict[str, float]:
    network, dataset = fresh_network(trial)
    return evaluate(network, dataset, "test", trial=trial, device=CPU)


def test_only_recalls_are_computed_unless_more_is_asked_for(make_trial: Any) -> None:
    found = numbers(make_trial())
    assert {"i2t_r1", "t2i_r10", "m_recall", "rsum", "tie_share"} <= set(found)
    assert not [name for name in found if name.startswith(("srd", "coco", "relevance")) or "worst" in name]


def test_everything_that_is_asked_for_is_there_under_its_name(
    make_trial: Any, tmp_path: Path, no_encoder: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(evaluation.PROTOCOLS, "coco_test_1k", RankingProtocol("coco_test_1k", version=1, folds=4))
    listed = tmp_path / "more.csv"
    listed.write_text("image,caption_image,caption\nimage-0,image-1,0\n")
    trial = with_evaluation(
        make_trial(), positive_ranks=True, srd_at=[1, 5], relevance=str(listed),
        protocols=["coco_test_1k", "first_caption"],
    )
    found = numbers(trial)
    plain = numbers(make_trial())
    assert all(found[name] == value for name, value in plain.items())
    assert found["coco_test_1k_m_recall"] >= found["m_recall"]
    assert found["first_caption_t2i_r5"] > 0
    assert found["i2t_mean_worst_rank"] >= found["i2t_mean_positive_rank"] >= found["i2t_mean_rank"]
    assert found["relevance_m_recall"] >= found["m_recall"]
    assert 0 <= found["srd_1_tiny-1"] <= 11
    assert found["srd_share_5_tiny-1"] == pytest.approx(found["srd_5_tiny-1"] / 12)


def test_judgements_of_coco_give_the_scores_of_their_definition(make_trial: Any, tmp_path: Path) -> None:
    network, dataset = fresh_network(make_trial())
    by_image = {0: [0, 1, 5, 9], 3: [6], 7: [2, 14, 15, 20, 21]}
    by_caption = {1: [0, 4], 8: [4, 5, 6], 23: [11]}
    rated = {(0, 0), (0, 5), (3, 6), (11, 23)}
    write_eccv(
        tmp_path, {image_number(row): [*map(caption_number, found)] for row, found in by_image.items()},
        {caption_number(row): [*map(image_number, found)] for row, found in by_caption.items()},
    )
    names = [record.image_id for _, record in split_records(dataset, "test")]
    texts, pictures = [(2, 9), (9, 20), (20, 21)], [(0, 4), (4, 11)]
    cxc = write_all_cxc(
        tmp_path, [(caption_number(caption), names[image], 3.2) for image, caption in rated],
        [(*map(caption_number, pair), 3.2) for pair in texts], [(names[one], names[two], 2.7) for one, two in pictures],
    )
    captions = write_captions(tmp_path, dataset, "test")
    trial = with_evaluation(make_trial(), coco={"captions": captions, "eccv_caption": str(tmp_path), "cxc": cxc})
    found = evaluate(network, dataset, "test", trial=trial, device=CPU)
    encoded = encode_split(network, dataset, "test", trial=trial, device=CPU)
    scores = network.similarity(encoded.images, encoded.captions[0])[:, encoded.places.argsort()]
    for way, matrix, lists in (("i2t", scores, by_image), ("t2i", scores.T, by_caption)):
        precisions, averages, firsts = [], [], []
        for query, positives in lists.items():
            order = matrix[query].argsort(descending=True).tolist()
            hits = [item in positives for item in order[: len(positives)]]
            precisions.append(sum(hits) / len(hits))
            averages.append(sum(sum(hits[: end + 1]) / (end + 1) for end, hit in enumerate(hits) if hit) / len(hits))
            firsts.append(hits[0])
        expected = [100 * sum(values) / len(lists) for values in (averages, precisions, firsts)]
        assert [found[f"eccv_{way}_{name}"] for name in ("map_at_r", "r_precision", "r1")] == pytest.approx(expected)
    ranked = {image: scores[image].argsort(descending=True).tolist()[:5] for image, _ in rated}
    hits = [any((image, caption) in rated for caption in captions) for image, captions in ranked.items()]
    assert found["cxc_i2t_r5"] == pytest.approx(100 * sum(hits) / 3)
    siblings = [(2 * image, 2 * image + 1) for image in range(12)]
    with evaluating(network):
        vectors = {"t2t": encoded.captions[0].vectors[encoded.places.argsort()], "i2i": encoded.images.vectors}
    for kind, fitting in (("t2t", texts + siblings), ("i2i", pictures)):
        firsts = []
        for query, vector in enumerate(vectors[kind]):
            relevant = {one + two - query for one, two in fitting if query in (one, two)}
            if relevant:
                others = [item for item in range(len(vectors[kind])) if item != query]
                others.sort(key=lambda item: -float(vector @ vectors[kind][item]))
                firsts.append(min(others.index(item) for item in relevant))
        assert len(firsts) == (24 if kind == "t2t" else 3)
        for k in (1, 5, 10):
            assert found[f"cxc_{kind}_r{k}"] == pytest.approx(100 * sum(each < k for each in firsts) / len(firsts))
    summary = train(trial, tmp_path / "trial").finish()
    assert {f"test_{name}" for name in (*ECCV, *CXC, *CXC_AMONG)} <= summary.keys(), "columns of a board"


def test_further_test_sets_are_scored_by_the_best_weights_with_the_words_of_the_study(
    make_trial: Any, data_path: str, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(data_path, other)
    words = json.loads((other / VOCABULARY_FILE).read_text())
    renumbered = json.dumps({**words, "words": words["words"][:5] + words["words"][:4:-1]}).encode()
    assert json.loads(renumbered) != words
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["vocabulary"]["sha256"] = sha256_hex(renumbered)
    (other / VOCABULARY_FILE).write_bytes(renumbered)
    (other / "manifest.json").write_text(json.dumps(manifest))
    tests = {"other": {"path": str(other)}, "again": {"split": "validation"}}
    attempt = train(make_trial(data={"tests": tests}), tmp_path / "trial")
    summary = attempt.finish()
    for name in ("m_recall", "i2t_r1", "t2i_r10", "rsum"):
        assert summary[f"test.other.{name}"] == summary[f"test_{name}"]
    assert summary["test.again.m_recall"] == summary["best_m_recall"]


def test_srd_follows_its_definition(make_trial: Any, no_encoder: None) -> None:
    trial = with_evaluation(make_trial(), srd_at=[3])
    network, dataset = fresh_network(trial)
    encoded = encode_split(network, dataset, "test", trial=trial, device=CPU)
    scores = network.similarity(encoded.images, encoded.captions[0]).tolist()
    vectors = semantic_sources.encoder_vectors(dataset, None, split="test").astype(float)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    total = 0
    for query in range(24):
        meaning = [max(float(units[c] @ units[query]) for c in (2 * n, 2 * n + 1)) for n in range(12)]
        by_meaning = sorted(range(12), key=lambda n: -meaning[n])
        by_network = sorted(range(12), key=lambda n: -scores[n][query])
        total += sum(abs(by_network.index(n) - place) for place, n in enumerate(by_meaning[:3]))
    assert numbers(trial)["srd_3_tiny-1"] == pytest.approx(total / (24 * 3))


def test_a_data_set_without_test_split_is_scored_on_validation_when_more_than_recalls_is_asked_for(
    make_trial: Any, tmp_path: Path
) -> None:
    def summary(trial: TrialSpec, folder: str) -> dict[str, float]:
        return train(trial, tmp_path / folder).finish()

    plain = make_trial(epochs=1.0, data={"test_split": None})
    assert not [name for name in summary(plain, "plain") if name.startswith(("test_", "best_i2t"))]
    found = summary(with_evaluation(plain, positive_ranks=True), "more")
    assert found["best_m_recall"] == pytest.approx(summary(plain, "again")["best_m_recall"])
    assert found["best_i2t_mean_worst_rank"] >= 1
    tested = summary(with_evaluation(make_trial(epochs=1.0), positive_ranks=True), "tested")
    assert tested["test_i2t_mean_worst_rank"] >= 1


def test_the_evaluated_split_is_test_where_there_is_one(make_trial: Any, data_path: str) -> None:
    dataset = Dataset.open(data_path)
    assert evaluated_split(make_trial().data, dataset) == "test"
    assert evaluated_split(make_trial(data={"test_split": None}).data, dataset) == "validation"
    assert evaluated_split(make_trial(data={"test_split": "gone"}).data, dataset) == "validation"
