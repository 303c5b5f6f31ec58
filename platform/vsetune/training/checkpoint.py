"""What an attempt leaves on disk: `checkpoint.pt` to continue from, `best.safetensors` to score the test split.

Neither file can run code when read: the checkpoint is loaded with `weights_only=True`, the weights are safetensors.

A crash between the two writes must not leave a checkpoint that speaks of other best weights than those beside it.
So new best weights first get a name of their own (`best-<step>.safetensors`); the checkpoint names the step; only then
do they become `best.safetensors`. Opening a folder completes an interrupted move.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from vsetune.errors import StaleCheckpoint, StorageError
from vsetune.networks.weight_notes import WeightNotes
from vsetune.training.atomic import write_whole

FORMAT = 1
CHECKPOINT_FILE = "checkpoint.pt"
BEST_FILE = "best.safetensors"


class CheckpointFolder:
    """The checkpoint and the best weights of one trial. fingerprint: of the TrialSpec; data: of the data set."""

    def __init__(self, folder: Path, *, fingerprint: str, data: str) -> None:
        self.path = folder / CHECKPOINT_FILE
        self.best_path = folder / BEST_FILE
        self._folder = folder
        self._identity = {"format": FORMAT, "fingerprint": fingerprint, "data": data}

    def load(self) -> dict[str, Any] | None:
        """The state last saved, or None. StaleCheckpoint when it is damaged or belongs to another trial or data set."""
        if not self.path.exists():
            return None
        try:
            saved = torch.load(self.path, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise StaleCheckpoint(
                f"{self.path}: damaged checkpoint ({reason[0]}); remove {self._folder} to start the trial again."
            ) from error
        self._check_identity(saved)
        state: dict[str, Any] = saved["state"]
        self._settle_best(state["best_step"])
        return state

    def save(
        self, state: Mapping[str, Any], *, best_weights: Mapping[str, Tensor] | None,
        notes: WeightNotes | None = None,
    ) -> None:
        """Replace the checkpoint. state: plain data and tensors, with `best_step`, the step of the best weights.

        best_weights: given when this state is itself the best so far. notes: kept in their file. StorageError when
        they cannot be written.
        """
        step = state["best_step"]
        if best_weights is not None:
            # one entry, since safetensors writes several in any order and equal weights shall be equal files
            metadata = {"step": str(step)} if notes is None else notes.to_metadata(step=step)
            content = safetensors.torch.save(dict(best_weights), metadata=metadata)
            write_whole(self._best_of(step), content, durable=True)
        buffer = io.BytesIO()
        torch.save({**self._identity, "state": dict(state)}, buffer)
        write_whole(self.path, buffer.getbuffer(), durable=True)
        self._settle_best(step)

    def load_best(self) -> dict[str, Tensor]:
        """The weights of the best validation, on the CPU."""
        try:
            return safetensors.torch.load_file(self.best_path, device="cpu")
        except (OSError, SafetensorError) as error:
            raise StorageError(
                f"{self.best_path}: cannot read the best weights ({error}); "
                f"remove {self._folder} to start the trial again."
            ) from error

    def _best_of(self, step: int) -> Path:
        return self._folder / f"best-{step}.safetensors"

    def _settle_best(self, step: int | None) -> None:
        """Finish the move that a crash may have interrupted; drop weights that no checkpoint names."""
        if step is not None and self._best_of(step).exists():
            os.replace(self._best_of(step), self.best_path)
        for orphan in self._folder.glob("best-*.safetensors*"):
            orphan.unlink(missing_ok=True)

    def _check_identity(self, saved: Any) -> None:
        found = saved if isinstance(saved, dict) else {}
        for key, value in self._identity.items():
            if found.get(key) == value:
                continue
            raise StaleCheckpoint(
                f"{self.path}: its {_MEANING[key]} is {found.get(key)}, this one is {value}; "
                "use another folder, or remove this one to start the trial again."
            )


_MEANING = {"format": "format", "fingerprint": "trial fingerprint", "data": "data fingerprint"}
