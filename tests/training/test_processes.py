"""A trial trained by several processes has the losses, the gradients and the curve of the same trial in one."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import refused
from several_processes import together
from trained_here import CPU, fresh_network, open_attempt, run_through
from wide_courses import DIVISIBLE, NORMALISING, course, fitting

from vsetune.config.study.training import TrialSpec
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import ConfigError, DataError, NumericError
from vsetune.metrics.positives import Positives
from vsetune.metrics.ranks import retrieval_ranks
from vsetune.networks.network_base import evaluating
from vsetune.training import validation
from vsetune.training.evaluation import score_split
from vsetune.training.helper import help_training
from vsetune.training.processes import ALONE, Processes
from vsetune.training.reranking import FirstStage, reranked_scores
from vsetune.training.step import Learner
from vsetune.training.validation import encode_split, split_scores

CLOSE = {"rtol": 1e-9, "atol": 1e-11}
Course = tuple[list[float], list[torch.Tensor]]


def courses(processes: Processes, trials: list[TrialSpec], steps: list[int]) -> list[Course]:
    return [course(trial, steps=each, processes=processes) for trial, each in zip(trials, steps, strict=True)]


def require_equal(alone: list[Course], divided: list[Course], trials: list[TrialSpec]) -> None:
    for (losses, gradients), (other_losses, other_gradients), trial in zip(alone, divided, trials, strict=True):
        where = f"{trial.network.name}.{trial.loss.name}, batches of {trial.training.batch_unit}"
        assert other_losses == pytest.approx(losses, rel=1e-9), where
        for gradient, other in zip(gradients, other_gradients, strict=True):
            torch.testing.assert_close(other, gradient, msg=lambda text, where=where: f"{where}: {text}", **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_processes_change_no_number_of_a_training(count: int, make_trial: Any, small: Any, tmp_path: Path) -> None:
    trials = [
        make_trial(
            network=small(network) | DIVISIBLE[network], loss=loss, batch_unit=unit, batch_size=6,
            chunk_size=None if unit == "pairs" else 2,
        )
        for network in DIVISIBLE for loss, unit in fitting(network)
    ]
    trials += [
        make_trial(network=small(network) | settings, loss={"name": loss}, batch_size=6)
        for network, settings in NORMALISING.items() for loss in ("lmh", "info_nce")
    ]
    steps = [1] * len(trials)
    alone = courses(ALONE, trials, steps)
    for divided in together(count, courses, trials, steps, folder=tmp_path / "files"):
        require_equal(alone, divided, trials)


def test_three_processes_train_as_one(make_trial: Any, small: Any, tmp_path: Path) -> None:
    """Odd batches among them: of 8 pairs, the last one of 2, so that a process has none."""
    dropout = small("pvse") | {"dropout": 0.4}
    learned, semantic = {"name": "info_nce", "learned": True}, {"name": "lseh"}
    few, whole = {"batch_size": 5, "chunk_size": 2}, {"batch_size": 5, "chunk_size": 100}
    trials = [
        make_trial(network=small(name), loss=loss, **training) for name, loss, training in (
            ("vsepp", learned, {}), ("vsepp", semantic, few), ("vsepp", learned, whole),
            ("scan", semantic, {}), ("scan", learned, few), ("scan", semantic, whole),
        )
    ]
    trials += [
        make_trial(network=dropout, loss={"name": "contrastive"}, chunk_size=3),
        make_trial(loss=learned, phases=[{"epochs": 0.5, "trains": "loss"}, {}]),
        make_trial(loss={"name": "lseh", "memory_size": 20, "memory_start_epoch": 0}),
    ]
    trials += [make_trial(network=small(name) | settings) for name, settings in NORMALISING.items()]
    steps = [math.ceil(42 / trial.training.batch_size) for trial in trials]  # one epoch
    alone = courses(ALONE, trials, steps)
    for divided in together(3, courses, trials, steps, folder=tmp_path / "files"):
        require_equal(alone, divided, trials)


def trained(processes: Processes, trial: TrialSpec, folder: Path, validations: int | None) -> list[Any]:
    """The curve of the first process after so many validations; None: at the end."""
    if not processes.is_first:
        help_training(trial, folder, processes, device="cpu", threads=1)
        return []
    attempt = open_attempt(trial, folder, processes=processes)
    if validations is None:
        run_through(attempt)
    for _ in range(validations or 0):
        attempt.advance()
    processes.task(None)
    attempt.close()  # its reading thread must not outlive the process
    return points(attempt)


def points(attempt: Any) -> list[Any]:
    return [(point.step, point.m_recall, point.metrics["train_loss"]) for point in attempt.history]


@pytest.mark.slow
def test_a_trial_goes_on_with_another_number_of_processes(make_trial: Any, tmp_path: Path) -> None:
    trial = make_trial(loss={"name": "contrastive"}, epochs=3.0)  # a loss that samples
    whole = points(run_through(open_attempt(trial, tmp_path / "whole")))
    first, _ = together(2, trained, trial, tmp_path / "trial", 1, folder=tmp_path / "two")
    assert len(first) == 1
    again = open_attempt(trial, tmp_path / "trial")
    again.advance()
    again.close()
    last, _ = together(2, trained, trial, tmp_path / "trial", None, folder=tmp_path / "two again")
    assert [step for step, *_ in last] == [step for step, *_ in whole]
    for (_, m_recall, loss), (_, whole_recall, whole_loss) in zip(last, whole, strict=True):
        assert m_recall == whole_recall
        assert loss == pytest.approx(whole_loss, rel=1e-5)  # float32


EVALUATED = [*DIVISIBLE, "sgraf_saf", "cgmn"]


def evaluated(processes: Processes, trials: list[TrialSpec], rerank: bool) -> list[Any]:
    """Scores of every pair and recalls of every trial, with fresh weights and small parts: 3 batches of images, 9
    groups of captions."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(validation, "_IMAGES_PER_BATCH", 5)
        patched.setattr(validation, "_CAPTIONS_PER_GROUP", 3)
        found = []
        for trial in trials:
            network, dataset = fresh_network(trial)
            where = {"trial": trial, "device": CPU, "processes": processes}
            first = FirstStage(*fresh_network(trials[0])[:1], trials[0], top=3) if rerank else None
            for images in (None, 7):
                score = score_split(network, dataset, "validation", images=images, first=first, **where)
                with evaluating(network):
                    items = encode_split(network, dataset, "validation", images=images, every_caption=rerank, **where)
                    owner = items.owner
                    if first is None:
                        scores = split_scores(network, items, trial=trial, processes=processes)
                    else:
                        proposals = first.proposals(dataset, "validation", device=CPU, images=images)
                        scores = reranked_scores(network, items, proposals, trial=trial, processes=processes)
                    matrix = scores.block(slice(None), slice(None))
                    positives = Positives.of_owner(owner, images=scores.shape[0], captions=scores.shape[1])
                    ranks = retrieval_ranks(scores, positives, block_shape=(5, 4), among=processes)
                    found.append((score, matrix, ranks.image_to_text.ranks, ranks.text_to_image.tied))
        return found


@pytest.mark.parametrize(("count", "rerank"), [pytest.param(3, False, marks=pytest.mark.slow), (2, True)])
def test_processes_rank_a_split_as_one_to_the_last_bit(
    count: int, rerank: bool, make_trial: Any, small: Any, tmp_path: Path
) -> None:
    """Of the 2 batches of 7 images one process of three has none."""
    trials = [make_trial(network=small(name)) for name in (["vsepp", "scan", "gsmn"] if rerank else EVALUATED)]
    alone = evaluated(ALONE, trials, rerank)
    for divided in together(count, evaluated, trials, rerank, folder=tmp_path / "files"):
        for (score, *tensors), (own_score, *own_tensors) in zip(alone, divided, strict=True):
            assert own_score == score
            assert all(torch.equal(own, tensor) for own, tensor in zip(own_tensors, tensors, strict=True))


def not_ranked(processes: Processes, trial: TrialSpec, damaged: str | None) -> list[str]:
    """What is told of data that are damaged for all but the first process, if damaged, and of a network of NaN."""
    network, dataset = fresh_network(trial)
    of_data = [] if damaged is None else [dataset if processes.is_first else Dataset.open(damaged)]
    told = []
    for each in (*of_data, dataset):
        if len(told) == len(of_data):
            next(iter(network.parameters())).data.fill_(torch.nan)
        with pytest.raises((NumericError, DataError)) as caught:
            score_split(network, each, "validation", trial=trial, device=CPU, processes=processes)
        told.append(str(caught.value))
    return told


def test_what_one_process_cannot_rank_is_an_error_of_all(make_trial: Any, tmp_path: Path) -> None:
    trial, damaged = make_trial(), tmp_path / "damaged"
    shutil.copytree(trial.data.path, damaged)
    (damaged / "validation-000000.tar").write_bytes(b"cut")
    one, other = together(2, not_ranked, trial, str(damaged), folder=tmp_path / "files")
    assert one == other
    assert "validation-000000.tar" in one[0]
    assert one[1:] == not_ranked(ALONE, trial, None)


@pytest.mark.parametrize(("network", "message"), [
    ({"name": "sgraf_saf"}, "VSE-T029"), ({"name": "tags"}, "VSE-T030"),
    ({"name": "vse_infinity", "mlp_statistics": "padded"}, "VSE-T029"),
])
def test_what_cannot_be_divided_is_refused(network: Any, message: Any, make_trial: Any, small: Any) -> None:
    trial = make_trial(network=small(network["name"]) | network)
    with refused(message, by=ConfigError, network=network["name"], key="resources.workers"):
        Learner.build(trial, Dataset.open(trial.data.path), CPU, processes=Processes(0, 2))
