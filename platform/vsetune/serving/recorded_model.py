"""A recorded attempt as MLflow's `pyfunc` loads it; MLflow itself is not imported here.

The folder of such a model holds no weights: `attempt.json` names the attempt and the SHA-256 of its best checkpoint,
which is fetched from the tracking store that MLflow is set to ($MLFLOW_TRACKING_URI, which `mlflow.set_tracking_uri`
sets too; else the one under VSETUNE_HOME). The data set of the training has to be where it was.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vsetune.config.study.study_spec import TrackingSpec
from vsetune.errors import DamagedCheckpoint, DataError, StaleCheckpoint, UsageError
from vsetune.files.hashes import sha256_of_file
from vsetune.files.whole_files import read_json
from vsetune.jobs.preparation import existing_store
from vsetune.jobs.recorded import RecordedAttempt, best_weights, find_attempt
from vsetune.scoring.device import choose_device
from vsetune.scoring.evaluation import evaluated_split
from vsetune.serving.queries import Answer, Retrieval
from vsetune.tracking.store import TrackingStore
from vsetune.training.trained import TrainedTrial, load_trained

CAPTION, FEATURES = "caption", "image_features"
"""Columns of the input, one of them filled in each row."""
TOP, SPLIT = "top", "split"
"""Parameters: items to name for each query; where to search, empty for the split that the trial was scored on."""


class RecordedModel:
    """What `mlflow.pyfunc.load_model` gives to ask."""

    def __init__(self, trained: TrainedTrial) -> None:
        self._trained = trained
        self._searched: dict[str, Retrieval] = {}

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """For each row `items` and `scores`, best first: images (ids) for a caption, captions (texts) for features.

        model_input: a pandas table, or a mapping of columns. UsageError for rows with both or neither, DataError for a
        split that is not there.
        """
        given = dict(params or {})
        columns = {name: list(model_input[name]) for name in (CAPTION, FEATURES) if name in model_input}
        rows = max(map(len, columns.values()), default=0)
        captions, features = (columns.get(name, [None] * rows) for name in (CAPTION, FEATURES))
        kinds = [_kind(place, captions[place], features[place]) for place in range(rows)]
        retrieval = self._retrieval(str(given.get(SPLIT) or ""))
        top = int(given.get(TOP, 5))
        of_captions = [text for text, kind in zip(captions, kinds, strict=True) if kind == CAPTION]
        of_features = [value for value, kind in zip(features, kinds, strict=True) if kind == FEATURES]
        found = {
            CAPTION: iter(retrieval.images_for(of_captions, top=top)),
            FEATURES: iter(retrieval.captions_for(of_features, top=top)),
        }
        return [_plain(next(found[kind])) for kind in kinds]

    def _retrieval(self, split: str) -> Retrieval:
        chosen = split or evaluated_split(self._trained.trial.data, self._trained.dataset)
        if chosen not in self._searched:
            self._searched[chosen] = Retrieval(self._trained, chosen)
        return self._searched[chosen]


def _load_pyfunc(path: str) -> RecordedModel:
    """What MLflow calls. path: of `attempt.json`. UsageError family in one line for what is gone or has changed."""
    named = read_json(Path(path))
    if not isinstance(named, dict) or not {"run", "study", "trial", "sha256"} <= named.keys():
        raise DataError(f"{path}: names no attempt; log the model again with vsetune trial model")
    store = existing_store(TrackingSpec())
    attempt = _attempt(store, named)
    with tempfile.TemporaryDirectory() as into:
        weights = best_weights(store, attempt, Path(into))
        if weights is None:
            raise StaleCheckpoint(f"{attempt.where}: its best checkpoint is gone; see vsetune tracking doctor")
        if sha256_of_file(weights) != named["sha256"]:
            raise DamagedCheckpoint(
                f"{attempt.where}: {weights.name} is not the one that was logged (other SHA-256); log the model again "
                "with vsetune trial model"
            )
        fingerprint = attempt.record.start.protocol.get("data_fingerprint")
        return RecordedModel(load_trained(
            attempt.trial(), weights, device=choose_device("auto"), data_fingerprint=fingerprint, where=attempt.where
        ))


def _attempt(store: TrackingStore, named: Mapping[str, Any]) -> RecordedAttempt:
    """By its run, or where the study has been moved since, by its name."""
    try:
        found = find_attempt(store, str(named["run"]), finished=False)
    except UsageError:
        return find_attempt(store, f"{named['study']}/{named['trial']}", finished=True)
    return found


def _kind(place: int, caption: Any, features: Any) -> str:
    has_caption = isinstance(caption, str) and bool(caption.strip())
    has_features = features is not None and not isinstance(features, float)  # pandas: NaN where there is none
    if has_caption == has_features:
        got = "both" if has_caption else "neither"
        raise UsageError(f"row {place}: got {got} of {CAPTION} and {FEATURES}, need one of them")
    return CAPTION if has_caption else FEATURES


def _plain(answer: Answer) -> dict[str, Any]:
    return {"items": answer.items, "scores": answer.scores}
