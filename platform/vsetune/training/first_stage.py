"""The first stage of a re-ranking during training: the settings and weights of another trial, stored as files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from vsetune.config.study.training import TrialSpec
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import ConfigError, StaleCheckpoint
from vsetune.training import messages
from vsetune.training.reranking import FirstStage
from vsetune.training.trained import load_trained


@dataclass(frozen=True)
class KeptStage:
    """trial: of the first stage. weights: a `best.safetensors` that does not change.

    data_fingerprint: of the data set that it was trained on; None: not recorded.
    """

    trial: TrialSpec
    weights: Path
    data_fingerprint: str | None


def open_first_stage(
    trial: TrialSpec, kept: KeptStage | None, dataset: Dataset, device: torch.device
) -> FirstStage | None:
    """The first stage of a trial, with its network loaded; None where the trial ranks every pair.

    ConfigError when the files of a named first stage are missing, when it does not embed, or when its weights do not
    fit; DataError when it was trained on other data.
    """
    wanted = trial.evaluation.rerank
    if wanted is None:
        return None
    where = f"study {trial.study} trial {trial.trial}: evaluation.rerank"
    if kept is None:
        raise ConfigError(messages.FIRST_STAGE_MISSING(where=where, first=wanted.first))
    require_embedding(kept.trial, where=f"{where}.first: {wanted.first}")
    at_home = kept.trial.model_copy(update={"data": kept.trial.data.model_copy(update={"path": dataset.path})})
    try:
        trained = load_trained(
            at_home, kept.weights, device=device, data_fingerprint=kept.data_fingerprint, where=f"{where}.first"
        )
    except StaleCheckpoint as error:  # of another trial: nothing is wrong with the checkpoint of this one
        raise ConfigError(error.problem) from error
    return FirstStage(trained.network, trained.trial, top=wanted.top)


def require_embedding(trial: TrialSpec, *, where: str) -> None:
    """ConfigError for a first stage that scores pairs itself."""
    if trial.network.kind == "score":
        raise ConfigError(messages.FIRST_STAGE_SCORES(where=where, network=trial.network.name))
