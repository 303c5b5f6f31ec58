"""A recorded trial as a model for MLflow's `pyfunc`; MLflow itself is not imported here.

The folder of such a model has everything needed to encode captions and features of images (`study/model_files.py`).
Queries are compared with the index in the model, or with the data set of its training if it is still at its path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from vsetune.data.stored.dataset import Dataset, evaluated_split
from vsetune.errors import DataError, Message, NumericError, UsageError
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import evaluating
from vsetune.study.model_files import CarriedNetwork, load_model
from vsetune.training.device import choose_device, tower_precision
from vsetune.training.search_index import SearchIndex
from vsetune.training.validation import EncodedSplit, split_scores

_QUERY_INPUT = Message(
    "VSE-S072", "got {got}; need a sentence, a list of sentences, or columns caption (sentences) and image_features "
    "(regions of an image, each a list of numbers)",
)

CAPTION, FEATURES = "caption", "image_features"
"""Columns of the input; each row fills one of them."""
_ANSWERS = ("items", "embeddings")


class RecordedModel:
    """The model that `mlflow.pyfunc.load_model` returns."""

    def __init__(self, asked: CarriedNetwork) -> None:
        self._asked, self._indexes = asked, SplitIndexes(asked)

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
            raise UsageError(
                "VSE-S074", "{option}: got {got!r}, need {need}", option="answer", got=answer,
                need=" or ".join(_ANSWERS),
            )
        rows = _rows(model_input)
        if not rows:
            return []
        if answer == "items":
            index, top = self._indexes.of(str(given.get("split") or "")), int(given.get("top", 5))
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
        if kind == CAPTION:
            return encoded_captions(self._asked, values)
        return encoded_images(self._asked, feature_inputs(self._asked, values))


def _load_pyfunc(path: str) -> RecordedModel:
    """The entry point for MLflow. path: of the model's files. One-line errors for files that differ from those logged.
    """
    if Path(path).is_file():
        raise DataError(
            "VSE-S068", "{model}: no model of this version of vsetune; log it again with vsetune trial model",
            model=path,
        )  # without its weights
    return RecordedModel(load_model(Path(path), device=choose_device("auto")))


def _rows(given: Any) -> list[tuple[str, Any]]:
    """(column, value) of each row. UsageError for input of another kind."""
    names = getattr(given, "columns", given if isinstance(given, Mapping) else None)
    if names is None:
        sentences = [given] if isinstance(given, str) else list(given) if hasattr(given, "__iter__") else None
        if sentences is None or not all(isinstance(each, str) for each in sentences):
            raise UsageError(_QUERY_INPUT(got=_kinds(given if sentences is None else sentences)))
        return [(_column(place, text, None), text) for place, text in enumerate(sentences)]
    unknown = [name for name in names if name not in (CAPTION, FEATURES)]
    if unknown or not len(names):
        raise UsageError(_QUERY_INPUT(got=f"column {unknown[0]!r}" if unknown else "no column"))
    columns = {name: [given[name]] if isinstance(given[name], str) else list(given[name]) for name in names}
    if len(set(map(len, columns.values()))) > 1:
        raise UsageError(_QUERY_INPUT(got="columns of different lengths"))
    count = len(next(iter(columns.values())))
    captions, features = (columns.get(name, [None] * count) for name in (CAPTION, FEATURES))
    kinds = [_column(place, *both) for place, both in enumerate(zip(captions, features, strict=True))]
    return [(kind, (captions if kind == CAPTION else features)[place]) for place, kind in enumerate(kinds)]


def _column(place: int, caption: Any, features: Any) -> str:
    has_caption = isinstance(caption, str) and bool(caption.strip())
    has_features = features is not None and not isinstance(features, float)  # pandas: NaN where there is none
    if has_caption == has_features:
        got = "both" if has_caption else "neither"
        raise UsageError(
            "VSE-S073", "row {row}: got {got} of caption and image_features, need one of them", row=place, got=got
        )
    return CAPTION if has_caption else FEATURES


def _kinds(given: Any) -> str:
    kinds = sorted({type(each).__name__ for each in given}) if isinstance(given, list) else []
    return f"a list of {', '.join(kinds)}" if kinds else f"a {type(given).__name__}"


class SplitIndexes:
    """What a model can search: the index that it carries, and splits of its training data, each encoded once."""

    def __init__(self, asked: CarriedNetwork) -> None:
        self._asked = asked
        self._searched = {} if asked.index is None else {asked.index.split: asked.index}

    def of(self, split: str) -> SearchIndex:
        """The index of a split; of an empty name: the one that the model carries, else the split that the trial was
        scored on. DataError for data that are gone or have changed, and for a split that they do not have."""
        asked = self._asked
        if not split and asked.index is not None:
            return asked.index
        if split in self._searched:
            return self._searched[split]
        dataset = self.dataset()
        chosen = split or evaluated_split(asked.trial.data, dataset)
        if chosen not in self._searched:
            dataset.require_unchanged([chosen])
            self._searched[chosen] = SearchIndex.of_split(
                asked.network, dataset, chosen, trial=asked.trial, device=asked.device
            )
        return self._searched[chosen]

    def dataset(self) -> Dataset:
        """The data of the training. DataError where they are gone or have changed."""
        asked = self._asked
        index = "no index" if asked.index is None else f"an index of split {asked.index.split} alone"
        try:
            dataset = Dataset.open(asked.trial.data.path)
        except DataError as error:
            path = asked.trial.data.path
            raise DataError(
                "VSE-S070", "{model}: the model has {index}, and the data set of its training is not here ({path}); "
                "log it with an index (vsetune trial model {model} --index SPLIT), or ask for embeddings (answer: "
                "embeddings)", model=asked.name, index=index, path=path,
            ) from error
        if asked.fingerprint not in (None, dataset.fingerprint):
            raise DataError(
                "VSE-S071", "{model}: the model has {index}, and the data set of its training has changed since "
                "({path}); log it with an index (vsetune trial model {model} --index SPLIT), or ask for embeddings "
                "(answer: embeddings)", model=asked.name, index=index, path=dataset.path,
            )
        return dataset


_EMPTY = 2
"""Number of ids of a sentence without words: start and end."""


@dataclass(frozen=True)
class Answer:
    """The items that a query retrieves, best first. items: ids of images as ingested, or texts of captions. places:
    their indices in the split. scores: larger is closer, in the units of the network's similarity."""

    items: list[str]
    places: list[int]
    scores: list[float]


def encoded_captions(asked: CarriedNetwork, captions: Sequence[str]) -> Encoded:
    """Sentences, encoded. UsageError for an empty sentence, or a network that reads parses."""
    if asked.described.spec.reads.dependencies:
        raise _cannot(asked, "parses, which captions of a query do not have", others="captions")
    rows = []
    for place, caption in enumerate(captions):
        ids = asked.encode(caption)
        if len(ids) <= _EMPTY:
            raise UsageError("VSE-S075", "caption {row}: got {got!r}, need a sentence", row=place, got=caption)
        rows.append(torch.tensor(ids))
    tokens = pad_sequence(rows, batch_first=True).to(asked.device)
    lengths = torch.tensor([len(row) for row in rows], device=asked.device)
    with evaluating(asked.network), tower_precision(asked.trial.training, asked.device):
        return asked.network.encode_captions(CaptionInputs(tokens, lengths))


def encoded_images(asked: CarriedNetwork, inputs: ImageInputs) -> Encoded:
    """Images, encoded."""
    with evaluating(asked.network), tower_precision(asked.trial.training, asked.device):
        return asked.network.encode_images(inputs)


def feature_inputs(asked: CarriedNetwork, features: Sequence[Any]) -> ImageInputs:
    """Images as the network reads them. features: of each image (regions, width), extracted as for the data set.

    UsageError for features of another shape, or a network that reads photographs or boxes.
    """
    held = asked.described
    if held.spec.reads.pixels is not None:
        raise _cannot(asked, "photographs, which features of a query are not", others="images")
    if held.spec.reads.boxes and held.boxes:
        raise _cannot(asked, "boxes of regions, which features of a query do not have", others="images")
    rows = []
    for place, given in enumerate(features):
        need = {"row": place, "width": held.width, "regions": held.regions, "model": asked.name}
        try:
            values = np.array([list(region) for region in given], dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise UsageError(
                "VSE-S076", "image {row}: got {got}, need (regions, {width}) numbers with 1 to {regions} regions, as "
                "{model} was trained with", got=f"no numbers ({error})", **need,
            ) from error
        is_matrix = values.ndim == 2 and values.shape[1] == held.width
        if not is_matrix or not 1 <= len(values) <= held.regions:
            raise UsageError(
                "VSE-S076", "image {row}: got {got}, need (regions, {width}) numbers with 1 to {regions} regions, as "
                "{model} was trained with", got=f"features of shape {values.shape}", **need,
            )
        rows.append(torch.from_numpy(values))
    counts = torch.tensor([len(row) for row in rows], device=asked.device)
    return ImageInputs(pad_sequence(rows, batch_first=True).to(asked.device), counts)


def embeddings(asked: CarriedNetwork, items: Encoded) -> list[Any]:
    """The vector or vectors of each item that the network compares. UsageError for a network that scores pairs."""
    require_embeddings(asked)
    return list(items.vectors.tolist())


def require_embeddings(asked: CarriedNetwork) -> None:
    """UsageError for a network that scores pairs, whose items have no vector that is compared."""
    if asked.network.kind == "score":
        raise UsageError(
            "VSE-S078", "network {network} scores pairs and has no embedding of one item; ask for items (answer: "
            "items)", network=asked.described.name,
        )


def images_for(asked: CarriedNetwork, index: SearchIndex, captions: Encoded, *, top: int) -> list[Answer]:
    """The images that captions retrieve."""
    places = torch.arange(len(captions), device=asked.device)
    return _best(_scores(asked, index.encoded.images, [captions], places).T, index.images, top)


def captions_for(asked: CarriedNetwork, index: SearchIndex, images: Encoded, *, top: int) -> list[Answer]:
    """The captions that images retrieve."""
    return _best(_scores(asked, images, index.encoded.captions, index.encoded.places), index.captions, top)


def _scores(asked: CarriedNetwork, images: Encoded, captions: list[Encoded], places: Tensor) -> Tensor:
    """(images, captions) scores, as an evaluation computes them."""
    with evaluating(asked.network):
        items = EncodedSplit(images, captions, places, owner=places)  # no score depends on the owner
        return split_scores(asked.network, items, trial=asked.trial).block(slice(None), slice(None))


def _best(scores: Tensor, names: Sequence[str], top: int) -> list[Answer]:
    """The names and values of the largest scores of each row. UsageError, NumericError or DataError for a bad `top`,
    scores that are not finite, or an empty index."""
    if top < 1:
        raise UsageError("VSE-S074", "{option}: got {got!r}, need {need}", option="top", got=top, need="at least 1")
    if not bool(torch.isfinite(scores).all()):
        raise NumericError("VSE-S079", "the network gives scores that are not finite for this query")
    if scores.shape[1] == 0:
        raise DataError("VSE-S080", "the index is empty, there is nothing to search in")
    values, places = scores.sort(dim=1, descending=True, stable=True)
    rows = zip(places[:, :top].tolist(), values[:, :top].tolist(), strict=True)
    return [Answer([names[place] for place in row], row, own) for row, own in rows]


def _cannot(asked: CarriedNetwork, reads: str, *, others: str) -> UsageError:
    may = "captions" if others == "images" else "features of images"
    return UsageError(
        "VSE-S077", "network {network} reads {reads}: as a model it is asked with {asked} alone; vsetune trial gallery "
        "takes {others} from the data set", network=asked.described.name, reads=reads, asked=may, others=others,
    )
