"""One optimisation step: batch in, changed network and a few detached numbers out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vsetune.config.training import TrialSpec
from vsetune.data.batch import Batch
from vsetune.data.dataset import Dataset
from vsetune.losses import Items, Loss, LossContext, LossInputs, LossOutput, build_loss
from vsetune.networks import Network, build_network
from vsetune.training.device import tower_precision
from vsetune.training.optimizers import Optimizers
from vsetune.training.schedule import drop_factor, phase_at


@dataclass(frozen=True)
class StepResult:
    """Detached scalars on the training device; reading them waits for it. gradient_norm: before the clip."""

    loss: Tensor
    gradient_norm: Tensor
    output: LossOutput


@dataclass(frozen=True)
class Learner:
    """Everything a step changes. phase: of the trial's training, 0-based."""

    trial: TrialSpec
    phase: int
    network: Network
    loss: Loss
    optimizers: Optimizers
    context: LossContext
    device: torch.device

    @classmethod
    def build(cls, trial: TrialSpec, dataset: Dataset, device: torch.device) -> Learner:
        """Fresh parameters, drawn on the CPU from the global generator: the same start on every device."""
        network = build_network(
            trial.network, regions=dataset.regions, width=dataset.width, vocabulary_size=len(dataset.vocabulary)
        ).to(device)
        context = LossContext(network.embedding_size, dataset.split(trial.data.train_split).images)
        loss = build_loss(trial.loss_in(0), context).to(device)
        return cls._in_phase(0, trial, network, loss, context, device)

    def enter(self, phase: int, *, learned: bool) -> Learner:
        """The learner of another phase: the same network, the loss of that phase, fresh optimizers.

        learned: the new loss takes over what the present one has learned; False before a checkpoint is loaded.
        """
        loss = build_loss(self.trial.loss_in(phase), self.context).to(self.device)
        if learned:
            loss.continue_from(self.loss)
        return self._in_phase(phase, self.trial, self.network, loss, self.context, self.device)

    @classmethod
    def _in_phase(
        cls, phase: int, trial: TrialSpec, network: Network, loss: Loss, context: LossContext, device: torch.device
    ) -> Learner:
        phases = trial.training.phases
        is_frozen = bool(phases) and phases[phase].trains == "loss"
        network.requires_grad_(not is_frozen)
        network.zero_grad(set_to_none=True)
        network.train(not is_frozen)
        return cls(trial, phase, network, loss, Optimizers(trial.training, network, loss), context, device)

    def set_epoch(self, epoch: float) -> float:
        """Set the learning rates of a step that starts at this epoch; returns the network's."""
        training = self.trial.training
        phase, start = phase_at(training, epoch)
        factor = training.phases[phase].learning_rate_factor if training.phases else 1.0
        self.optimizers.set_learning_rate(factor, drop=drop_factor(training, epoch - start))
        return self.optimizers.learning_rate

    def step(self, batch: Batch) -> StepResult:
        """Change the parameters once by a batch that is on the device already."""
        self.optimizers.zero_grad()
        output = self.loss(self._loss_inputs(batch))
        torch.autograd.backward(output.value)
        norm = _clip(self.network, self.trial.training.gradient_clip, self.device)
        self.loss.before_step()
        self.optimizers.step()
        self.loss.after_step()
        return StepResult(output.value.detach(), norm, output)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain data that `load_state_dict` continues from."""
        return {
            "phase": self.phase,
            "network": self.network.state_dict(),
            "loss": self.loss.state_dict(),
            "optimizers": self.optimizers.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue as the learner that was saved; it had the same trial and phase."""
        self.network.load_state_dict(state["network"])
        self.loss.load_state_dict(state["loss"])
        self.optimizers.load_state_dict(state["optimizers"])

    def _loss_inputs(self, batch: Batch) -> LossInputs:
        with tower_precision(self.trial.training, self.device):
            images = self.network.encode_images(batch.image_features, batch.region_counts)
            captions = self.network.encode_captions(batch.captions, batch.caption_lengths)
        # Similarities and losses compare small differences: bfloat16 never reaches them.
        images, captions = images.float(), captions.float()
        return LossInputs(
            similarity=self.network.similarity(images, captions),
            image_ids=batch.image_ids,
            caption_image_ids=batch.image_ids[batch.caption_rows],
            caption_rows=batch.caption_rows,
            semantic_vectors=batch.semantic_vectors,
            images=Items(images),
            captions=Items(captions),
        )


def _clip(network: Network, largest: float | None, device: torch.device) -> Tensor:
    """Scale the network's gradient to at most `largest`; returns its norm before that, 0 for a frozen network.

    What a loss learns (a temperature) stays outside: its gradient has another scale and would shrink the network's.
    """
    parameters = [p for p in network.parameters() if p.grad is not None]
    if not parameters:
        return torch.zeros((), device=device)
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if largest is not None:
        torch.nn.utils.clip_grads_with_norm_(parameters, largest, norm)
    return norm.detach()
