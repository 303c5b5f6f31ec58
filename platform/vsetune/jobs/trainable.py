"""One attempt inside a Ray worker. Reports plain data; every failure that is not the death of the process is a report.

Tune restarts a trainable whose process died; the new one finds the checkpoint in the trial's folder and goes on. A
numeric failure, by contrast, would only fail again: it ends the trial with a reason.
"""

from __future__ import annotations

import logging
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ray import tune

from vsetune.config.masked_output import mask_output
from vsetune.config.secrets import masked
from vsetune.config.training import TrialSpec
from vsetune.errors import AttemptError, VsetuneError
from vsetune.training.attempt import Attempt

logger = logging.getLogger(__name__)


class AttemptTrainable(tune.Trainable):
    """A warm actor that runs one attempt after another.

    config: trial (TrialSpec as plain data), folder (the trial's own, seen by every node), device, threads.
    Reports, each with an `event`: `opened` once, `point` per validation, `failed` at most once and last.
    """

    def setup(self, config: dict[str, Any]) -> None:
        mask_output()
        self._attempt: Attempt | None = None
        self._wanted = config

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._close()
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        try:
            return self._open() if self._attempt is None else self._advance()
        except Exception as error:  # whatever it is, the trial has failed and the study goes on
            return self._failure(error)

    def cleanup(self) -> None:
        self._close()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: the attempt keeps its own checkpoint in the trial's folder."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing: the attempt finds its own checkpoint in the trial's folder."""

    def _open(self) -> dict[str, Any]:
        trial = TrialSpec.model_validate(self._wanted["trial"])
        self._attempt = Attempt(
            trial, Path(self._wanted["folder"]), device=self._wanted["device"], threads=self._wanted["threads"]
        )
        return {
            "event": "opened",
            "number": self._attempt.number,
            "environment": dict(self._attempt.environment()),
            "protocol": dict(self._attempt.protocol()),
            "inherited": [asdict(point) for point in self._attempt.history[: self._attempt.inherited]],
        }

    def _advance(self) -> dict[str, Any]:
        assert self._attempt is not None
        if self._attempt.is_finished:  # the process died after the last validation, before the end was recorded
            return self._end({"event": "point", "point": None})
        point = self._attempt.advance()
        report = {
            "event": "point", "point": asdict(point), "epoch": point.epoch,
            "best_m_recall": max(earlier.m_recall for earlier in self._attempt.history),
        }
        return self._end(report) if self._attempt.is_finished else report | {"summary": self._attempt.summary()}

    def _end(self, report: dict[str, Any]) -> dict[str, Any]:
        assert self._attempt is not None
        summary = self._attempt.finish()
        return report | {"is_finished": True, "done": True, "summary": summary, "artifacts": self._artifacts()}

    def _artifacts(self) -> list[str]:
        assert self._attempt is not None
        best = self._attempt.best_path
        return [str(best)] if best.exists() else []

    def _failure(self, error: Exception) -> dict[str, Any]:
        kind = error.kind if isinstance(error, AttemptError) else type(error).__name__
        if not isinstance(error, VsetuneError):
            logger.error("trial %s: %s", self._wanted["trial"]["trial"], traceback.format_exc())
        text = masked(" ".join(str(error).split())) or kind
        summary = self._attempt.summary() if self._attempt is not None else {}
        report = {"event": "failed", "kind": kind, "error": f"{kind}: {text}"[:2000], "summary": summary, "done": True}
        return report | {"number": self._attempt.number if self._attempt is not None else None}

    def _close(self) -> None:
        attempt, self._attempt = getattr(self, "_attempt", None), None
        if attempt is not None:
            attempt.close()
