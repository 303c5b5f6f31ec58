"""One optimisation step: batch in, changed network and a few detached numbers out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from vsetune.config.training import TrainingSpec, TrialSpec
from vsetune.data.batch import Batch
from vsetune.data.dataset import Dataset
from vsetune.losses import Loss, LossInputs, LossOutput, build_loss
from vsetune.networks import Network, build_network
from vsetune.training.device import tower_precision
from vsetune.training.optimizers import build_optimizer


@dataclass(frozen=True)
class StepResult:
    """Detached scalars on the training device; reading them waits for it. gradient_norm: before the clip."""

    loss: Tensor
    gradient_norm: Tensor
    output: LossOutput


@dataclass(frozen=True)
class Learner:
    """Everything a step changes."""

    network: Network
    loss: Loss
    optimizer: Optimizer
    training: TrainingSpec
    device: torch.device

    @classmethod
    def build(cls, trial: TrialSpec, dataset: Dataset, device: torch.device) -> Learner:
        """Fresh parameters, drawn on the CPU from the global generator: the same start on every device."""
        network = build_network(
            trial.network, regions=dataset.regions, width=dataset.width, vocabulary_size=len(dataset.vocabulary)
        ).to(device)
        loss = build_loss(trial.loss).to(device)
        return cls(network, loss, build_optimizer(trial.training, network, loss), trial.training, device)

    def step(self, batch: Batch) -> StepResult:
        """Change the parameters once by a batch that is on the device already."""
        self.optimizer.zero_grad(set_to_none=True)
        output = self.loss(self._loss_inputs(batch))
        output.value.backward()
        norm = _clip(self.network, self.training.gradient_clip)
        self.optimizer.step()
        self.loss.after_step()
        return StepResult(output.value.detach(), norm, output)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain data that `load_state_dict` continues from."""
        return {
            "network": self.network.state_dict(),
            "loss": self.loss.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue as the learner that was saved; it had the same trial."""
        self.network.load_state_dict(state["network"])
        self.loss.load_state_dict(state["loss"])
        self.optimizer.load_state_dict(state["optimizer"])

    def _loss_inputs(self, batch: Batch) -> LossInputs:
        with tower_precision(self.training, self.device):
            images = self.network.encode_images(batch.image_features, batch.region_counts)
            captions = self.network.encode_captions(batch.captions, batch.caption_lengths)
        # Similarities and losses compare small differences: bfloat16 never reaches them.
        return LossInputs(
            similarity=self.network.similarity(images.float(), captions.float()),
            image_ids=batch.image_ids,
            caption_image_ids=batch.image_ids[batch.caption_rows],
            caption_rows=batch.caption_rows,
            semantic_vectors=batch.semantic_vectors,
        )


def _clip(network: Network, largest: float | None) -> Tensor:
    """Scale the network's gradient to at most `largest`; returns its norm before that.

    What a loss learns (a temperature) stays outside: its gradient has another scale and would shrink the network's.
    """
    parameters = [p for p in network.parameters() if p.grad is not None]
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if largest is not None:
        torch.nn.utils.clip_grads_with_norm_(parameters, largest, norm)
    return norm.detach()
