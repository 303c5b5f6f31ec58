"""A recorded trial as a model for MLflow's `pyfunc`; MLflow itself is not imported here.

The folder of such a model has everything needed to encode captions and features of images (`study/model_files.py`).
Queries are compared with the index in the model, or with the data set of its training if it is still at its path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vsetune.data.stored.dataset import Dataset
from vsetune.errors import DataError, UsageError
from vsetune.networks.encoded import Encoded
from vsetune.study.model_files import CarriedNetwork, load_model
from vsetune.study.queries import captions_for, embeddings, encoded_captions, encoded_images, images_for
from vsetune.training.device import choose_device
from vsetune.training.evaluation import evaluated_split
from vsetune.training.search_index import SearchIndex

CAPTION, FEATURES = "caption", "image_features"
"""Columns of the input; each row fills one of them."""
_NEED = (
    f"need a sentence, a list of sentences, or columns {CAPTION} (sentences) and {FEATURES} (regions of an image, each "
    "a list of numbers)"
)
_ANSWERS = ("items", "embeddings")


class RecordedModel:
    """The model that `mlflow.pyfunc.load_model` returns."""

    def __init__(self, asked: CarriedNetwork) -> None:
        self._asked = asked
        self._searched = {} if asked.index is None else {asked.index.split: asked.index}

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """For each row `items` and `scores`, best first: images (ids) for a caption, captions (texts) for features.

        model_input: a sentence, a list of sentences, a pandas table, or a mapping of columns. params: `top`, number of
        items; `split`, the split to search, by default the one of the index, else the one that the trial was scored on;
        `answer`: `embeddings` returns `embedding` for each row instead, which needs no index and no data set.
        UsageError for other input, and rows with both columns or neither; DataError for a split that is missing.
        """
        given = dict(params or {})
        answer = str(given.get("answer") or _ANSWERS[0])
        if answer not in _ANSWERS:
            raise UsageError(f"answer: got {answer!r}, need {' or '.join(_ANSWERS)}")
        rows = _rows(model_input)
        if not rows:
            return []
        if answer == "items":
            index, top = self._index(str(given.get("split") or "")), int(given.get("top", 5))
        answers: dict[str, list[dict[str, Any]]] = {}
        for kind in {kind for kind, _ in rows}:
            items = self._encoded(kind, [value for of, value in rows if of == kind])
            if answer == "embeddings":
                answers[kind] = [{"embedding": vector} for vector in embeddings(self._asked, items)]
                continue
            found = (images_for if kind == CAPTION else captions_for)(self._asked, index, items, top=top)
            answers[kind] = [{"items": each.items, "scores": each.scores} for each in found]
        waiting = {kind: iter(found) for kind, found in answers.items()}
        return [next(waiting[kind]) for kind, _ in rows]

    def _encoded(self, kind: str, values: Sequence[Any]) -> Encoded:
        return encoded_captions(self._asked, values) if kind == CAPTION else encoded_images(self._asked, values)

    def _index(self, split: str) -> SearchIndex:
        """The index of the model, or of a split of its training data; each split is encoded once."""
        asked = self._asked
        if not split and asked.index is not None:
            return asked.index
        if split in self._searched:
            return self._searched[split]
        dataset = self._data_set()
        chosen = split or evaluated_split(asked.trial.data, dataset)
        if chosen not in self._searched:
            self._searched[chosen] = SearchIndex.of_split(
                asked.network, dataset, chosen, trial=asked.trial, device=asked.device
            )
        return self._searched[chosen]

    def _data_set(self) -> Dataset:
        asked = self._asked
        carried = "no index" if asked.index is None else f"an index of split {asked.index.split} alone"
        wrong = f"{asked.name}: the model carries {carried}, and the data set of its training"
        advice = (
            f"log it with an index (vsetune trial model {asked.name} --index SPLIT), or ask for embeddings (answer: "
            "embeddings)"
        )
        try:
            dataset = Dataset.open(asked.trial.data.path)
        except DataError as error:
            raise DataError(f"{wrong} is not here ({asked.trial.data.path}); {advice}") from error
        if asked.fingerprint not in (None, dataset.fingerprint):
            raise DataError(f"{wrong} has changed since ({dataset.path}); {advice}")
        return dataset


def _load_pyfunc(path: str) -> RecordedModel:
    """The entry point for MLflow. path: of the model's files. One-line errors for files that differ from those logged.
    """
    if Path(path).is_file():
        raise DataError(
            f"{path}: the model was logged by an earlier version of vsetune, without its weights; log it again with "
            "vsetune trial model"
        )
    return RecordedModel(load_model(Path(path), device=choose_device("auto")))


def _rows(given: Any) -> list[tuple[str, Any]]:
    """(column, value) of each row. UsageError for input of another kind."""
    names = getattr(given, "columns", given if isinstance(given, Mapping) else None)
    if names is None:
        sentences = [given] if isinstance(given, str) else list(given) if hasattr(given, "__iter__") else None
        if sentences is None or not all(isinstance(each, str) for each in sentences):
            raise UsageError(f"got {_kinds(given if sentences is None else sentences)}; {_NEED}")
        return [(_column(place, text, None), text) for place, text in enumerate(sentences)]
    unknown = [name for name in names if name not in (CAPTION, FEATURES)]
    if unknown or not len(names):
        raise UsageError(f"got {f'column {unknown[0]!r}' if unknown else 'no column'}; {_NEED}")
    columns = {name: [given[name]] if isinstance(given[name], str) else list(given[name]) for name in names}
    if len(set(map(len, columns.values()))) > 1:
        raise UsageError(f"got columns of different lengths; {_NEED}")
    count = len(next(iter(columns.values())))
    captions, features = (columns.get(name, [None] * count) for name in (CAPTION, FEATURES))
    kinds = [_column(place, *both) for place, both in enumerate(zip(captions, features, strict=True))]
    return [(kind, (captions if kind == CAPTION else features)[place]) for place, kind in enumerate(kinds)]


def _column(place: int, caption: Any, features: Any) -> str:
    has_caption = isinstance(caption, str) and bool(caption.strip())
    has_features = features is not None and not isinstance(features, float)  # pandas: NaN where there is none
    if has_caption == has_features:
        got = "both" if has_caption else "neither"
        raise UsageError(f"row {place}: got {got} of {CAPTION} and {FEATURES}, need one of them")
    return CAPTION if has_caption else FEATURES


def _kinds(given: Any) -> str:
    kinds = sorted({type(each).__name__ for each in given}) if isinstance(given, list) else []
    return f"a list of {', '.join(kinds)}" if kinds else f"a {type(given).__name__}"
