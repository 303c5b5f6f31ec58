"""How one trial trains: optimizer, schedule, batches, validation cadence; and the trial itself."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from vsetune.config.base import Range, Spec, tunable
from vsetune.config.losses import AnyLoss
from vsetune.config.networks import AnyNetwork


class TrainingSpec(Spec):
    """One training recipe. An epoch is one pass over all image-caption pairs of the train split."""

    epochs: float = Field(30.0, gt=0, description="length of a full attempt, in epochs; fractions count")
    batch_size: int = Field(128, ge=2, description="pairs per batch (images per batch with batch_unit images)")
    batch_unit: Literal["pairs", "images"] = Field(
        "pairs", description="`pairs`: one caption per row; `images`: each image with all its captions (MSE**)",
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
    weight_decay: float = Field(0.0, ge=0)
    gradient_clip: float | None = Field(2.0, gt=0, description="largest global gradient norm; null: no clip")
    validate_every_steps: int | None = Field(
        None, ge=1, description="v, mini-batches between validations; null: at the end of epochs only",
    )
    shuffle_pairs: int = Field(10_000, ge=1, description="pairs held in the shuffle buffer")
    loader_workers: int = Field(0, ge=0, description="processes that decode shards; 0: a thread")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="bfloat16 autocasts the towers on a GPU; losses and ranks stay float32",
    )


class SemanticSpec(Spec):
    """Semantic vectors of captions: TF-IDF and truncated SVD fitted on the train split (LSEH Eq. 5)."""

    size: int = Field(400, ge=1, description="k, clipped to what the data allows")
    iterations: int = Field(20, ge=1, description="power iterations of the randomised SVD (reference: 100)")
    seed: int = Field(122, ge=0)


class DataSpec(Spec):
    """The ingested data set a study runs on."""

    path: str = Field(description="folder or s3:// prefix with manifest.json")
    semantics: SemanticSpec = SemanticSpec()
    train_split: str = "train"
    validation_split: str = "validation"
    test_split: str | None = Field("test", description="scored once by the best checkpoint; null: not at all")


class TrialSpec(Spec):
    """Everything one trial needs: plain data that travels to a worker."""

    study: str
    trial: str = Field(description="unique in the study, e.g. vsepp.lmh-c03-s1")
    cell: str = Field(description="network.loss, e.g. vsepp.lmh")
    data: DataSpec
    network: AnyNetwork
    loss: AnyLoss
    training: TrainingSpec
    seed: int = Field(ge=0)

    @model_validator(mode="after")
    def _batch_unit_fits_the_loss(self) -> TrialSpec:
        from vsetune.config.losses import HANDLES_SEVERAL_POSITIVES

        if self.training.batch_unit == "images" and self.loss.name not in HANDLES_SEVERAL_POSITIVES:
            fitting = ", ".join(sorted(HANDLES_SEVERAL_POSITIVES))
            raise ValueError(
                f"batch_unit images gives each image several positives, which {self.loss.name} does not define; "
                f"use batch_unit pairs, or one of {fitting}"
            )
        return self
