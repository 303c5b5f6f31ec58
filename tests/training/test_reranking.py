"""Validation by proposals of another network, and of a part of the validation split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import refused
from torch import Tensor
from trained_here import CPU, fresh_network, open_attempt, train
from whole_scores import matrix_scores

from vsetune.config.component_specs import NETWORKS
from vsetune.config.study.evaluation_settings import EvaluationSpec
from vsetune.config.study.training import TrialSpec
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import ConfigError, DataError, IncompatibleCurves
from vsetune.metrics.curves import check_same_protocol
from vsetune.networks.encoded import Encoded
from vsetune.networks.network_base import Network, evaluating
from vsetune.training.evaluation import evaluate, evaluate_reranked, score_split
from vsetune.training.reranking import FirstStage
from vsetune.training.trained import KeptStage
from vsetune.training.validation import encode_split, evenly_spread, proposed_pair_scores, split_scores

SCORING = [name for name, spec in NETWORKS.items() if spec().kind == "score"]


def build(trial: TrialSpec, *, seed: int = 0) -> Network:
    return fresh_network(trial, seed=seed)[0]


def with_evaluation(trial: TrialSpec, **wanted: Any) -> TrialSpec:
    return TrialSpec.model_validate(trial.to_plain() | {"evaluation": wanted})


@pytest.fixture(scope="module")
def kept(make_trial: Any, tmp_path_factory: pytest.TempPathFactory) -> KeptStage:
    """A trained first stage, as a study keeps it."""
    trial = make_trial(epochs=1.0)
    attempt = train(trial, tmp_path_factory.mktemp("first"))
    return KeptStage(trial, attempt.best_path, Dataset.open(trial.data.path).fingerprint)


@pytest.mark.parametrize("budget_bytes", [1, 2**30])
@pytest.mark.parametrize("name", SCORING)
def test_only_what_is_proposed_is_scored_and_as_one_pair_at_a_time_would_be(
    name: str, budget_bytes: int, make_trial: Any, small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vsetune.training.validation._CAPTIONS_PER_GROUP", 5)
    trial = make_trial(network=small(name))
    network, dataset = build(trial), Dataset.open(trial.data.path)
    proposed = torch.rand(12, 24, generator=torch.Generator().manual_seed(1)) < 0.3
    proposed[4] = False
    told: list[tuple[int, int]] = []
    with evaluating(network):
        encoded = encode_split(network, dataset, "test", trial=trial, device=CPU)
        plain = torch.zeros(12, 24)
        start = 0
        for group in encoded.captions:
            for j, i in ((j, i) for j in range(len(group)) for i in range(12)):
                column = int(encoded.places[start + j])
                if proposed[i, column]:
                    plain[i, column] = network.similarity(encoded.images[i : i + 1], group[j : j + 1])
            start += len(group)
        compared = counted(network, monkeypatch)
        found = proposed_pair_scores(
            network, encoded.images, encoded.captions, encoded.places, proposed, cost=trial.network.pair_cost,
            budget_bytes=budget_bytes, report=lambda done, total: told.append((done, total)),
        )
    torch.testing.assert_close(found, plain, rtol=1e-5, atol=1e-6)
    assert sum(compared) == int(proposed.sum())
    assert budget_bytes > 1 or set(compared) == {1}
    assert told[-1] == (int(proposed.sum()),) * 2


def counted(network: Network, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pairs of every later comparison."""
    seen: list[int] = []
    similarity = network.similarity

    def counting(images: Encoded, captions: Encoded) -> Tensor:
        seen.append(len(images) * len(captions))
        return similarity(images, captions)

    monkeypatch.setattr(network, "similarity", counting)
    return seen


def test_both_stages_stand_beside_each_other_and_agree_with_each_alone(make_trial: Any, small: Any) -> None:
    one, two = make_trial(), make_trial(network=small("scan"))
    dataset, second = Dataset.open(one.data.path), build(two, seed=1)
    first, alone = (evaluate(build(one), dataset, "test", trial=one, device=CPU) for _ in range(2))
    everything = evaluate(second, dataset, "test", trial=two, device=CPU)
    assert first == alone

    def reranked(top: int) -> Any:
        return evaluate_reranked(
            FirstStage(build(one).eval(), one, top=top), (second, two), dataset, "test", device=CPU
        )

    found = reranked(12)
    assert (found.first, found.both, found.proposed) == (first, everything, 12 * 24)
    few = reranked(2)
    assert few.first == first
    assert few.both not in (first, everything)
    assert 24 <= few.proposed < 12 * 24
    with pytest.raises(DataError, match="top 13"):
        reranked(13)


def test_a_subset_is_evenly_spread_and_ranked_as_if_it_were_the_split(make_trial: Any, small: Any) -> None:
    assert evenly_spread(3, 12) == [2, 6, 10]
    assert evenly_spread(5, 12) == [1, 3, 6, 8, 10]
    assert evenly_spread(12, 12) == list(range(12))
    for name in ("vsepp", "scan"):
        trial = make_trial(network=small(name))
        network, dataset = build(trial), Dataset.open(trial.data.path)
        chosen = torch.tensor(evenly_spread(5, 12))
        with evaluating(network):
            encoded = encode_split(network, dataset, "validation", trial=trial, device=CPU)
            scores = split_scores(network, encoded, trial=trial).block(slice(None), slice(None))
        held = torch.isin(encoded.owner, chosen)
        expected = matrix_scores(scores[chosen][:, held], torch.arange(5).repeat_interleave(2))
        found = score_split(network, dataset, "validation", trial=trial, device=CPU, images=5)
        assert found == expected
        assert (found.images, found.captions) == (5, 10)


def test_a_training_validates_what_is_proposed_of_the_subset_and_tests_the_whole_split(
    make_trial: Any, small: Any, kept: KeptStage, tmp_path: Path
) -> None:
    rerank = {"first": "tiny/vsepp.lmh-c00-s0", "top": 2, "content": "0" * 64}
    trial = with_evaluation(make_trial(network=small("scan")), rerank=rerank, validation_images=5)

    straight, broken = (open_attempt(trial, tmp_path / name, first_stage=kept) for name in ("straight", "broken"))
    compared = [straight.advance(), straight.advance()]
    summary = straight.finish()
    broken.advance()
    broken.close()
    again = open_attempt(trial, tmp_path / "broken", first_stage=kept)
    assert again.advance().m_recall == compared[1].m_recall
    assert again.finish()["test_m_recall"] == summary["test_m_recall"]
    network = build(trial)
    network.load_state_dict(straight._checkpoints.load_best())
    first = straight._first
    assert first is not None
    best = score_split(
        network, straight.dataset, "validation", trial=trial, device=CPU, images=5, first=first
    )
    assert best.m_recall == summary["best_m_recall"]
    tested = evaluate_reranked(first, (network, trial), straight.dataset, "test", device=CPU)
    assert summary["test_m_recall"] == tested.both["m_recall"]
    assert summary["test_first_stage_m_recall"] == tested.first["m_recall"]


def test_curves_under_other_proposals_or_another_subset_do_not_compare(
    make_trial: Any, small: Any, kept: KeptStage, tmp_path: Path
) -> None:
    first = {"first": "a/b", "top": 2, "content": "0" * 64}
    evaluations: list[dict[str, Any]] = [
        {}, {"rerank": first}, {"rerank": first | {"top": 3}}, {"rerank": first | {"content": "1" * 64}},
        {"validation_images": 5}, {"validation_images": 6},
    ]
    protocols = [
        open_attempt(
            with_evaluation(make_trial(network=small("scan")), **wanted), tmp_path / str(number),
            first_stage=kept if "rerank" in wanted else None,
        ).protocol()
        for number, wanted in enumerate(evaluations)
    ]
    assert not {"reranking", "validation_images"} & protocols[0].keys()
    for one in range(6):
        for two in range(one):
            with pytest.raises(IncompatibleCurves, match=r"reranking|validation_images"):
                check_same_protocol(protocols[one], protocols[two])


def test_what_is_off_leaves_no_trace_in_the_settings_that_fingerprints_are_made_of() -> None:
    assert EvaluationSpec().to_plain() == {"protocols": [], "positive_ranks": False, "srd_at": [], "relevance": None}
    assert EvaluationSpec(validation_images=3).to_plain()["validation_images"] == 3


def test_a_first_stage_that_is_missing_or_does_not_fit_is_told_before_training(
    make_trial: Any, small: Any, kept: KeptStage, tmp_path: Path
) -> None:
    trial = with_evaluation(make_trial(network=small("scan")), rerank={"first": "a/b", "top": 2})

    scan, wide = make_trial(network=small("scan")), make_trial(network=small("vsepp") | {"embedding_size": 9})
    for stage, message, error in (
        (None, "VSE-T017", ConfigError),
        (KeptStage(scan, kept.weights, kept.data_fingerprint), "VSE-T018", ConfigError),
        (KeptStage(kept.trial, kept.weights, "other"), "VSE-T026", DataError),
        (KeptStage(wide, kept.weights, kept.data_fingerprint), "VSE-T027", ConfigError),
    ):
        with refused(message, by=error):
            open_attempt(trial, tmp_path / "attempt", first_stage=stage)
    with pytest.raises(ValueError, match=r"evaluation\.rerank"):
        with_evaluation(make_trial(), rerank={"first": "a/b", "top": 2})


def test_numbers_of_a_whole_split_are_refused_of_a_part(make_trial: Any) -> None:
    trial = with_evaluation(make_trial(), validation_images=5, srd_at=[1])
    with refused("VSE-T016", by=DataError, score="srd_at", split="validation", images=5):
        evaluate(build(trial), Dataset.open(trial.data.path), "validation", trial=trial, device=CPU, images=5)
    with refused("VSE-T015", by=DataError, got=13, images=12):
        score_split(build(trial), Dataset.open(trial.data.path), "validation", trial=trial, device=CPU, images=13)
