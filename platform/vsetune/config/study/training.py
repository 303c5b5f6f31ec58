"""How one trial trains: optimizer, schedule, phases, batches, validation cadence; and the trial itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from vsetune.config.component_specs import DIFFERENT_VECTORS, AnyLoss, AnyNetwork, LossSpec, NetworkSpec
from vsetune.config.sources.trial_inputs import DataSpec, SemanticSource
from vsetune.config.spec.base import Count, FreeSettings, Range, Seed, Spec, tunable
from vsetune.config.spec.loading import Places, describe_problems, places_of
from vsetune.config.study.compatibility import mismatch
from vsetune.config.study.evaluation_settings import EvaluationSpec
from vsetune.config.study.loss_settings import as_settings, plugins_of, specs_of_loss, with_settings
from vsetune.errors import Problem


class PhaseSpec(Spec):
    """One phase. A new phase starts with fresh optimizers; network and loss keep what they have learned."""

    later_keys: ClassVar[tuple[str, ...]] = ("network",)

    epochs: float | None = Field(
        None, gt=0, le=1e6, description="length; null in the last phase: the rest of training.epochs",
    )
    trains: Literal["all", "loss"] = Field(
        "all", description="`loss` freezes the network and trains only what the loss learns",
    )
    learning_rate_factor: float = Field(
        1.0, gt=0,
        description="times training.learning_rate; drops, or the linear schedule, begin anew with the phase",
    )
    loss: FreeSettings = Field(
        default_factory=dict, description="hyperparameters of the loss in this phase; of a sum: by part",
    )
    network: dict[str, float] = Field(
        default_factory=dict, description="weights of the losses that the network brings, in this phase: of tags "
        "mlm_weight, istm_weight, wod_weight, woc_weight; of vsrn captioning_weight; of cgmn matching_weight",
    )

    @model_validator(mode="after")
    def _a_frozen_network_adds_no_loss(self) -> PhaseSpec:
        if self.trains == "loss" and self.network:
            raise ValueError(Problem.of(
                "VSE-C077", "network: `trains: loss` freezes it, and then it brings no loss; leave out one of them"
            ))
        return self


def phase_starts(phases: Sequence[PhaseSpec], epochs: float) -> list[float]:
    """The epoch at which each phase begins; [0] without phases or epochs. ValueError when they do not fill `epochs`
    exactly."""
    starts = [0.0]
    if not epochs:
        return starts
    for number, phase in enumerate(phases[:-1]):
        if phase.epochs is None:
            raise ValueError(Problem.of(
                "VSE-C075", "phases[{phase}].epochs: only the last phase may leave it out", phase=number
            ))
        starts.append(starts[-1] + phase.epochs)
    if not phases:
        return starts
    last = phases[-1].epochs
    if starts[-1] >= epochs or (last is not None and abs(starts[-1] + last - epochs) > 1e-9):
        total = starts[-1] + (last or 0.0)
        which = "all" if last else "all but the last"
        raise ValueError(Problem.of(
            "VSE-C076", "phases: {phases} take {got:g} epochs, training.epochs is {need:g}; make them agree, or leave "
            "out epochs of the last phase", phases=which, got=total, need=epochs,
        ))
    return starts


class LossRamp(Spec):
    """Epochs in which the loss is multiplied by a factor that grows linearly from 0 to 1 (VSE-infinity, grid mode)."""

    start_epoch: float = Field(1.0, ge=0, le=1e6, description="where it begins; counted from the start of the training")
    epochs: float = Field(1.0, gt=0, le=1e6, description="its length")


class LinearSchedule(Spec):
    """The learning rate grows linearly to its full height, then falls linearly to 0 at the end (BERT, TAGS-DC)."""

    warmup_fraction: float | None = Field(None, ge=0, lt=1, description="share of the time in which it grows; 0: none")
    warmup_steps: Count | None = Field(None, ge=0, description="the same in training steps")
    over: Literal["phase", "training"] = Field(
        "phase", description="`phase`: anew in every phase, as drops; `training`: once over all of them",
    )

    @model_validator(mode="after")
    def _one_length_of_the_warm_up(self) -> LinearSchedule:
        if (self.warmup_fraction is None) == (self.warmup_steps is None):
            got = "neither" if self.warmup_steps is None else "both"
            raise ValueError(Problem.of(
                "VSE-C067", "got {got} of warmup_fraction and warmup_steps, need one; TAGS-DC: warmup_fraction 0.1",
                got=got,
            ))
        return self


Precision = Literal["float32", "tf32", "bfloat16"]
Decay = Annotated[float, Field(ge=0, lt=1)]
"""Share of a running mean that remains at each step."""


class TrainingSpec(Spec):
    """One training recipe. An epoch is one pass over all image-caption pairs of the train split."""

    later_keys: ClassVar[tuple[str, ...]] = ("linear_schedule", "decay_vectors", "betas", "epsilon", "chunk_size")

    epochs: float = Field(
        30.0, ge=0, le=1e6, description="length of a full attempt, in epochs; fractions count; 0: validated once, as "
        "the network starts (zero-shot)",
    )
    batch_size: Count = Field(128, ge=2, description="pairs per batch (images per batch with batch_unit images)")
    batch_unit: Literal["pairs", "images"] = Field(
        "pairs", description="`pairs`: one caption per row; `images`: each image with all its captions (MSE**)",
    )
    chunk_size: Count | None = Field(
        None, ge=1, description="images, and captions, encoded at once: a batch is encoded in chunks, in the memory of "
        "one, and its loss is still that of the whole batch (GradCache); null: all at once",
    )
    optimizer: Literal["adam", "adamw"] = "adam"
    learning_rate: float = tunable(
        2e-4, Range(low=1e-4, high=3e-3, log=True), gt=0,
        description="start of the learning rate", paper="VSE++: 2e-4",
    )
    learning_rate_step: float | None = Field(15.0, gt=0, description="epochs until the rate drops; null: never")
    learning_rate_drop: float = Field(0.1, gt=0, le=1, description="factor of one drop")
    learning_rate_mode: Literal["repeat", "once"] = Field(
        "repeat", description="drop every learning_rate_step epochs (VSE++) or once (VSE-infinity)",
    )
    linear_schedule: LinearSchedule | None = Field(
        None, description="the rate warms up and falls to 0 instead of dropping; learning_rate_step is then null",
    )
    weight_decay: float = Field(0.0, ge=0)
    decay_vectors: bool = Field(
        True, description="false: no weight decay of biases and of what normalises, only of matrices (BERT, TAGS-DC)",
    )
    betas: tuple[Decay, Decay] = Field(
        (0.9, 0.999), description="of the optimizer: how long gradients, and their squares, are remembered",
    )
    epsilon: float = Field(1e-8, gt=0, le=1, description="of the optimizer: added to the root of the mean square")
    gradient_clip: float | None = Field(2.0, gt=0, description="largest global gradient norm; null: no clip")
    validate_every_steps: Count | None = Field(
        None, ge=1, description="v, mini-batches between validations; null: at the end of epochs only",
    )
    shuffle_pairs: Count = Field(10_000, ge=1, description="pairs in the shuffle buffer")
    drop_last: bool = Field(
        False, description="leave out the last batch of an epoch if it is short (VSE-infinity, region mode); an epoch "
        "is then the pairs of the full batches",
    )
    loader_workers: int = Field(
        0, ge=0, le=256,
        description="processes that read shards, and threads that decode photographs; 0: one thread for both",
    )
    precision: Precision = Field(
        "float32", description="on a GPU; `tf32`: products of a step on its matrix units, all else float32; `bfloat16` "
        "autocasts the towers, in validation too. Losses and ranks stay float32",
    )
    loss_ramp: LossRamp | None = Field(
        None, description="the loss grows from 0 during these epochs; null: never. The logged loss is the whole one",
    )
    phases: list[PhaseSpec] = Field(
        default_factory=list, max_length=100,
        description="parts of the training with other settings, in order; none: one phase",
    )

    @model_validator(mode="before")
    @classmethod
    def _a_schedule_takes_the_place_of_drops(cls, plain: Any) -> Any:
        """learning_rate_step defaults to null beside a schedule."""
        if isinstance(plain, dict) and plain.get("linear_schedule") is not None:
            return {"learning_rate_step": None, **plain}
        return plain

    @model_validator(mode="after")
    def _is_consistent(self) -> TrainingSpec:
        if self.linear_schedule is not None and self.learning_rate_step is not None:
            raise ValueError(Problem.of(
                "VSE-C066", "linear_schedule: learning_rate_step is {step:g}, and both change the rate; set "
                "learning_rate_step: null beside it, or linear_schedule: null", step=self.learning_rate_step,
            ))
        if self.drop_last and self.batch_unit == "images":
            raise ValueError(Problem.of(
                "VSE-C068", "drop_last: true needs batch_unit pairs (with images, epochs would differ in pairs); set "
                "it to false",
            ))
        phase_starts(self.phases, self.epochs)
        return self


class TrialSpec(Spec):
    """Everything one trial needs: plain data that travels to a worker."""

    later_keys: ClassVar[tuple[str, ...]] = ("plugins",)

    study: str
    trial: str = Field(description="unique in the study, e.g. vsepp.lmh-c03-s1")
    cell: str = Field(description="network.loss, e.g. vsepp.lmh")
    data: DataSpec
    network: AnyNetwork
    loss: AnyLoss
    training: TrainingSpec
    evaluation: EvaluationSpec = EvaluationSpec()
    seed: Seed
    plugins: dict[str, str] = Field(
        default_factory=dict, description="sha256 of other people's code in it, by kind and name: loss.my_loss",
    )

    @model_validator(mode="after")
    def _is_made_of_its_plugins(self) -> TrialSpec:
        loaded = plugins_of(self.network, self.loss)
        for key in sorted({*loaded, *self.plugins}):
            if loaded.get(key) != self.plugins.get(key):
                has, needs = (str(each.get(key, "none"))[:12] for each in (loaded, self.plugins))
                raise ValueError(Problem.of(
                    "VSE-C069", "plugins.{plugin}: code {got} is loaded, the trial is of {need}; load its own code",
                    plugin=key, got=has, need=needs,
                ))
        return self

    @model_validator(mode="after")
    def _decides_among_proposals(self) -> TrialSpec:
        if self.evaluation.rerank is not None and self.network.kind != "score":
            raise ValueError(Problem.of(
                "VSE-C070", "evaluation.rerank: network {network} embeds, so all its pairs are scored at once; need "
                "networks that score pairs, or rerank: null", network=self.network.name,
            ))
        return self

    @model_validator(mode="after")
    def _phases_fit(self) -> TrialSpec:
        """Every phase has a loss that fits the network and the same semantic vectors and sizes as the others."""
        losses = self._losses()
        for loss in losses:
            reason = mismatch(self.network, loss, batch_unit=self.training.batch_unit)
            if reason is not None:
                raise ValueError(reason)
        for phase in range(len(self.training.phases)):
            self.network_in(phase)
        sizes: dict[str, list[int]] = {}
        for name, size in (pair for loss in losses for pair in loss.lasting_sizes.items()):
            sizes.setdefault(name, []).append(size)
        for name, counts in sizes.items():
            if len(set(counts)) > 1:
                raise ValueError(Problem.of(
                    "VSE-C080", "training.phases: {setting} changes between phases ({found}); keep one number",
                    setting=name, found=", ".join(map(str, counts)),
                ))
        sources = {loss.semantic_source for loss in losses} - {None}
        if len(sources) > 1:
            raise ValueError(DIFFERENT_VECTORS(whose="phases", sources=", ".join(sorted(map(str, sources)))))
        return self

    def _losses(self) -> list[LossSpec]:
        return [self.loss_in(phase) for phase in range(max(1, len(self.training.phases)))]

    @property
    def semantic_source(self) -> SemanticSource | None:
        """The semantic vectors that the loss reads in any phase; None if it reads none."""
        return next((loss.semantic_source for loss in self._losses() if loss.semantic_source), None)

    def loss_in(self, phase: int) -> LossSpec:
        """The loss of a phase (0-based): `loss` with the phase's changes. ValueError if they do not fit."""
        if not self.training.phases:
            return self.loss
        changes = self.training.phases[phase].loss
        try:
            return _ONE_LOSS.validate_python(with_settings(self.loss.to_plain(), changes)) if changes else self.loss
        except ValidationError as error:
            places = places_of(specs_of_loss(self.loss.to_plain(), ()))
            raise _first_of(error, where=f"training.phases[{phase}].loss", places=places) from error

    def network_in(self, phase: int) -> NetworkSpec:
        """The network of a phase (0-based): `network` with the phase's weights of its losses. ValueError if it has no
        such loss."""
        changes = self.training.phases[phase].network if self.training.phases else {}
        if not changes:
            return self.network
        where, known = f"training.phases[{phase}].network", self.network.own_loss_weights
        for name, value in changes.items():
            if name not in known:
                problem = Problem.of(
                    "VSE-C078", "is no weight of a loss of network {network}; need one of its own: {known}",
                    network=self.network.name, known=", ".join(known) or "it has none",
                )
                raise ValueError(problem.at(f"{where}.{name}"))
            if getattr(self.network, name) == 0 < value:
                raise ValueError(Problem.of(
                    "VSE-C079", "got {got:g}, but the network has {setting} 0, which leaves that loss out; give it the "
                    "weight there, and 0 to the other phases", got=value, setting=name,
                ).at(f"{where}.{name}"))
        try:
            return type(self.network).model_validate(self.network.to_plain() | changes)
        except ValidationError as error:
            raise _first_of(error, where=where) from error


def _first_of(error: ValidationError, *, where: str, places: Places | None = None) -> ValueError:
    """The first problem of a phase's loss or network, with the key of its setting."""
    problem, *_ = describe_problems(error, where=where, places=places)
    return ValueError(problem.worded(as_settings(problem.replace(": ", ".", 1))))


_ONE_LOSS: TypeAdapter[AnyLoss] = TypeAdapter(AnyLoss)
