"""One optimisation step, and the optimizers of a trial: batch in, changed network and a few detached numbers out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from vsetune.config.study.training import TrainingSpec, TrialSpec
from vsetune.data.batches.batch import Batch
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import ConfigError
from vsetune.losses.loss_base import Items, Loss, LossContext, LossInputs, LossOutput, Memory
from vsetune.losses.loss_building import build_loss
from vsetune.networks.encoded import Encoded
from vsetune.networks.importing.stored import WeightNotes
from vsetune.networks.network_base import (
    Network,
    NetworkGroup,
    TrainingItems,
    require_sound_items,
    require_sound_scores,
)
from vsetune.networks.network_building import build_network
from vsetune.networks.parts.text_transformer import architecture_of
from vsetune.training.device import product_precision
from vsetune.training.drawn_negatives import Miner
from vsetune.training.encoding import BatchEncoder, require_divisible
from vsetune.training.processes import ALONE, Processes
from vsetune.training.schedule import (
    loss_factor,
    phase_at,
    rate_factor,
    require_room_for_warmup,
    training_steps_per_epoch,
)
from vsetune.training.start import known_architecture, start
from vsetune.training.trained import described

_OPTIMIZERS: dict[str, type[Adam] | type[AdamW]] = {"adam": Adam, "adamw": AdamW}
_FUSED_ON = {"cpu", "cuda"}
"""Devices on which a step of Adam is one fused pass over parameters and moments; results differ only by rounding."""


class Optimizers:
    """Fresh optimizers for all parameters that a phase trains.

    network: the groups of a network's parameters; none where it is frozen. Groups that train later are
    included, so that a saved state always has the same groups. A frozen group is not stepped; its moments start when it
    is unfrozen. The network's optimizer also trains learned parameters of the loss (a temperature), without weight
    decay.
    ConfigError when nothing is left to train.
    """

    def __init__(self, training: TrainingSpec, network: Sequence[NetworkGroup], loss: Loss) -> None:
        groups: list[dict[str, Any]] = [
            {"params": parameters, "weight_decay": decay, "factor": group.factor}
            for group in network for parameters, decay in _by_decay(training, group.parameters) if parameters
        ]
        own = []
        for group in loss.parameter_groups():
            if group.sgd_rate is None:
                groups.append({"params": group.parameters, "weight_decay": 0.0, "factor": 1.0})
            else:
                own.append({"params": group.parameters, "lr": group.sgd_rate, "start": group.sgd_rate})
        if not groups and not own:
            raise ConfigError(
                "VSE-T009", "training.phases: `trains: loss` with a loss that learns nothing; use `trains: all`"
            )
        self._start = training.learning_rate
        self.learning_rate = training.learning_rate
        self._all: dict[str, Optimizer] = {}
        if groups:
            self._all["network"] = _OPTIMIZERS[training.optimizer](
                groups, lr=training.learning_rate, betas=training.betas, eps=training.epsilon,
                fused=True if _devices_of(groups) <= _FUSED_ON else None,
            )
        if own:
            self._all["loss"] = SGD(own)
        self.set_learning_rate(1.0, drop=1.0)

    def set_learning_rate(self, factor: float, *, drop: float) -> None:
        """Set the learning rates of the following steps: factor x drop x initial rate for the network (times the factor
        of each group), drop x its own initial rate for the rest. drop: the factor of the scheduler (step
        decay or linear).
        """
        self.learning_rate = self._start * factor * drop
        for name, optimizer in self._all.items():
            for group in optimizer.param_groups:
                group["lr"] = self.learning_rate * group["factor"] if name == "network" else group["start"] * drop

    def zero_grad(self) -> None:
        """Clear all gradients."""
        for optimizer in self._all.values():
            optimizer.zero_grad(set_to_none=True)

    def step(self) -> None:
        """Update all parameters once."""
        for optimizer in self._all.values():
            optimizer.step()

    def moments(self) -> Iterator[tuple[Any, Any]]:
        """The optimizer state of each parameter that was stepped, with the parameter."""
        for optimizer in self._all.values():
            yield from optimizer.state.items()

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain data."""
        return {name: optimizer.state_dict() for name, optimizer in self._all.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue as the optimizers that were saved."""
        for name, optimizer in self._all.items():
            optimizer.load_state_dict(_with_own_fused(state[name], optimizer))


def _devices_of(groups: Sequence[Mapping[str, Any]]) -> set[str]:
    return {parameter.device.type for group in groups for parameter in group["params"]}


def _with_own_fused(saved: Mapping[str, Any], optimizer: Optimizer) -> dict[str, Any]:
    """The saved state, with `fused` of every group as in this optimizer. Torch would take it from the state, which may
    come from another device or from a version without it. ValueError when the number of groups differs."""
    groups = zip(saved["param_groups"], optimizer.param_groups, strict=True)
    return {**saved, "param_groups": [{**group, "fused": own["fused"]} for group, own in groups]}


def _by_decay(training: TrainingSpec, parameters: list[nn.Parameter]) -> list[tuple[list[nn.Parameter], float]]:
    """The parameters with their weight decay: one group, or matrices separate from vectors and scalars."""
    if training.decay_vectors or training.weight_decay == 0:
        return [(parameters, training.weight_decay)]
    matrices, vectors = ([each for each in parameters if (each.ndim > 1) == many] for many in (True, False))
    return [(matrices, training.weight_decay), (vectors, 0.0)]


@dataclass(frozen=True)
class StepResult:
    """Detached scalars on the training device; reading one waits for the device. gradient_norm: before clipping."""

    loss: Tensor
    gradient_norm: Tensor
    output: LossOutput


@dataclass
class Learner:
    """All state that a step changes. phase: of the trial's training, 0-based. epoch: at which the next step starts."""

    trial: TrialSpec
    steps_per_epoch: int
    phase: int
    network: Network
    loss: Loss
    optimizers: Optimizers
    context: LossContext
    device: torch.device
    epoch: float = 0.0
    is_checked: bool = False
    processes: Processes = ALONE

    @classmethod
    def build(
        cls, trial: TrialSpec, dataset: Dataset, device: torch.device, *, saved: Mapping[str, Any] | None = None,
        processes: Processes = ALONE,
    ) -> Learner:
        """Fresh parameters, drawn on the CPU from the global generator: the same start on every device. Where the
        network names weights to start from, these replace them; ConfigError when they do not fit.

        saved: the state that `load_state_dict` receives next. With it, neither pre-trained weights nor weights to start
        from are read, and they may be gone.
        """
        per_epoch = training_steps_per_epoch(trial, dataset)
        require_room_for_warmup(trial.training, steps_per_epoch=per_epoch)
        is_replaced = saved is not None or trial.network.start_from is not None
        known = known_architecture(trial.network) if saved is None else saved.get("architecture")
        network = build_network(
            trial.network, regions=dataset.regions, width=dataset.width, vocabulary_size=len(dataset.vocabulary),
            pretrained=not is_replaced, architecture=known,
        )
        require_divisible(network, trial, processes=processes.count)
        if saved is None:
            start(network, trial.network, dataset.vocabulary.words)
        network.to(device)
        context = LossContext(network.embedding_size, dataset.split(trial.data.train_split).images)
        loss = build_loss(trial.loss_in(0), context).to(device)
        loss.take_network_parameters(network.loss_parameters())
        learner = cls._in_phase(0, trial, network, loss, context, device, steps_per_epoch=per_epoch)
        learner.processes = processes
        return learner

    def enter(self, phase: int, *, learned: bool) -> Learner:
        """The learner of another phase: the same network, the loss of that phase, fresh optimizers.

        learned: the new loss takes over the learned state of the present one; False before a checkpoint is loaded.
        """
        loss = build_loss(self.trial.loss_in(phase), self.context).to(self.device)
        if learned:
            loss.continue_from(self.loss)
        entered = self._in_phase(
            phase, self.trial, self.network, loss, self.context, self.device, steps_per_epoch=self.steps_per_epoch
        )
        entered.processes = self.processes
        return entered

    @classmethod
    def _in_phase(
        cls, phase: int, trial: TrialSpec, network: Network, loss: Loss, context: LossContext, device: torch.device,
        *, steps_per_epoch: int,
    ) -> Learner:
        is_frozen = _trains_loss_only(trial, phase)
        network.begin_phase(trial.network_in(phase))
        network.requires_grad_(not is_frozen)
        network.zero_grad(set_to_none=True)
        network.train(not is_frozen)
        optimizers = Optimizers(trial.training, [] if is_frozen else network.parameter_groups(), loss)
        return cls(trial, steps_per_epoch, phase, network, loss, optimizers, context, device)

    def set_epoch(self, epoch: float) -> float:
        """Prepare a step that starts at this epoch: learning rates, the groups of the network that train, the factor of
        the loss. Returns the learning rate of the network."""
        training = self.trial.training
        phase, _ = phase_at(training, epoch)
        factor = training.phases[phase].learning_rate_factor if training.phases else 1.0
        drop = rate_factor(training, epoch, steps_per_epoch=self.steps_per_epoch)
        self.optimizers.set_learning_rate(factor, drop=drop)
        if not _trains_loss_only(self.trial, self.phase):
            self.network.set_epoch(epoch)
        self.epoch = epoch
        return self.optimizers.learning_rate

    def step(self, batch: Batch, drawn: Batch | None = None) -> StepResult:
        """Update the parameters once with a batch that is already on the device.

        drawn: the result of `TrainingBatches.drawn` for the step.
        """
        self.optimizers.zero_grad()
        with product_precision(self.trial.training, self.device):
            output = self._output(batch, drawn)
            torch.autograd.backward(output.value * loss_factor(self.trial.training, self.epoch))
        self.processes.average([*self.network.parameters(), *self.loss.parameters()])
        norm = _clip(self.network, self.trial.training.gradient_clip, self.device)
        self.loss.before_step()
        self.optimizers.step()
        self.loss.after_step()
        self.network.take_loss_parameters(self.loss.shared_parameters())
        return StepResult(output.value.detach(), norm, output)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain data that `load_state_dict` continues from."""
        return {
            "phase": self.phase,
            "network": self.network.state_dict(),
            "architecture": architecture_of(self.network),
            "loss": self.loss.state_dict(),
            "optimizers": self.optimizers.state_dict(),
        }

    def notes(self, dataset: Dataset) -> WeightNotes:
        """The notes stored with the network's weights. dataset: the training data set."""
        spec = self.trial.network
        words = dataset.vocabulary.words if spec.reads.word_pieces is None else None
        return WeightNotes.of(self.network, spec.name, words, described(self.trial, dataset).to_plain())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue as the learner that was saved, which must have had the same trial and phase."""
        self.network.load_state_dict(state["network"])
        self.loss.load_state_dict(state["loss"])
        self.optimizers.load_state_dict(state["optimizers"])

    def _output(self, batch: Batch, drawn: Batch | None) -> LossOutput:
        """The loss of the batch, with what the network adds to it in training (logged as `network_...`)."""
        encoder = BatchEncoder(self.network, self.trial, self.device, self.epoch, self.processes)
        images, captions = encoder.items(batch)
        # Similarities and losses compare small differences: bfloat16 never reaches them.
        similarity = self._similarity(encoder, images, captions, sizes=(len(batch.image_ids), len(batch.caption_rows)))
        inputs = LossInputs(
            similarity=similarity,
            image_ids=batch.image_ids,
            caption_image_ids=batch.image_ids[batch.caption_rows],
            caption_rows=batch.caption_rows,
            semantic_vectors=batch.semantic_vectors,
            images=_items(self.network, images),
            captions=_items(self.network, captions),
            drawn=self._hardest_drawn(drawn, batch, images, captions),
        )
        output: LossOutput = self.loss(inputs)
        if not self.network.training:
            return output
        negatives = inputs.image_ids[:, None] != inputs.caption_image_ids
        items = TrainingItems(images, captions, batch.captions, batch.caption_rows, negatives)
        return _with_auxiliary(output, self.network.auxiliary_losses(items))

    def _hardest_drawn(
        self, drawn: Batch | None, batch: Batch, images: Encoded, captions: Encoded
    ) -> Memory | None:
        """The hardest items sampled beside the batch, where the loss uses them."""
        asked = self.trial.loss_in(self.phase).drawn_negatives
        if asked is None or drawn is None:
            return None
        miner = Miner(self.network, self.trial.training, asked.hardest)
        return miner.hardest_of(drawn, batch, images, captions)

    def _similarity(
        self, encoder: BatchEncoder, images: Encoded, captions: Encoded, *, sizes: tuple[int, int]
    ) -> Tensor:
        """Scores of every image with every caption; the shapes of the first batch are checked. sizes: of the batch."""
        if self.is_checked:
            return encoder.similarity(images, captions)
        name = self.trial.network.name
        require_sound_items(self.network, name, images, captions, sizes=sizes)
        scores = encoder.similarity(images, captions)
        require_sound_scores(self.network, name, scores, sizes=sizes)
        self.is_checked = True
        return scores


def _trains_loss_only(trial: TrialSpec, phase: int) -> bool:
    phases = trial.training.phases
    return bool(phases) and phases[phase].trains == "loss"


def _items(network: Network, encoded: Encoded) -> Items | None:
    """Vectors of images or captions as losses receive them; None for a network that scores pairs."""
    if network.kind == "score":
        return None
    return Items(encoded.vectors, encoded.log_scales, encoded.residuals)


def _with_auxiliary(output: LossOutput, auxiliary: Mapping[str, Tensor]) -> LossOutput:
    """The sum; the retrieval loss itself is logged beside the parts that the network adds."""
    if not auxiliary:
        return output
    parts = {"retrieval": output.value.detach()} | {f"network_{key}": loss.detach() for key, loss in auxiliary.items()}
    value = torch.stack([output.value, *auxiliary.values()]).sum()
    return replace(output, value=value, parts=output.parts | parts)


def _clip(network: Network, largest: float | None, device: torch.device) -> Tensor:
    """Scale the network's gradient to at most `largest`; returns its norm before that, 0 for a frozen network.

    The learned parameters of a loss (a temperature) are excluded: their gradient has another scale and would shrink the
    network's.
    """
    parameters = [p for p in network.parameters() if p.grad is not None]
    if not parameters:
        return torch.zeros((), device=device)
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if largest is not None:
        torch.nn.utils.clip_grads_with_norm_(parameters, largest, norm)
    return norm.detach()
