"""CGMN's published recipe, as the phases that the docstring of its spec shows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import yaml

from vsetune.data.stored.dataset import Dataset
from vsetune.losses.loss_base import LossContext, LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.networks.cgmn.spec import CgmnSpec
from vsetune.training.schedule import phase_at
from vsetune.training.step import Learner

CPU = torch.device("cpu")
BATCHES, PAIRS = 500, 145_000 / 128  # a pass over Flickr30K in batches of 128


def published() -> dict[str, Any]:
    recipe: dict[str, Any] = yaml.safe_load((CgmnSpec.__doc__ or "").split(":\n\n")[1].rsplit("\n\n", 1)[0])
    return recipe


def test_hinges_are_summed_for_500_batches_and_rates_drop_at_epochs_20_and_25(make_trial: Any, small: Any) -> None:
    recipe = published()
    settings = {"epochs": 30.0, "learning_rate": 2e-4} | recipe["training"]
    trial = make_trial(network=small("cgmn"), loss=recipe["loss"], **settings)
    phases = [phase_at(trial.training, batch / PAIRS)[0] for batch in (0, BATCHES - 1, BATCHES, 20 * PAIRS, 25 * PAIRS)]
    assert phases == [0, 0, 1, 2, 3]

    learner = Learner.build(trial, Dataset.open(trial.data.path), CPU)
    rates = []
    for phase, epoch in enumerate((0.0, 0.5, 20.1, 25.1)):
        learner = learner.enter(phase, learned=True)
        rates.append(learner.set_epoch(epoch))
    assert rates == pytest.approx([2e-4, 2e-4, 2e-5, 2e-6])

    similarity, ids = torch.tensor([[0.5, 0.4, 0.6], [0.0, 0.5, 0.0], [0.0, 0.0, 0.5]]), torch.arange(3)
    # row 0: 0.2 + 0.4 - 0.5 and 0.2 + 0.6 - 0.5; the same again as columns 1 and 2
    for phase, expected in ((0, 2 * (0.1 + 0.3)), (1, 0.3 + (0.1 + 0.3)), (3, 0.3 + (0.1 + 0.3))):
        loss = build_loss(trial.loss_in(phase), LossContext(8, 3))
        loss.start_epoch(0)
        assert loss(LossInputs(similarity, ids, ids, ids)).value.item() == pytest.approx(expected)
