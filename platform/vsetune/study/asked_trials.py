"""Trained networks that are asked with sentences and photographs: recorded trials, and models in folders."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

import torch

from vsetune.board.gallery.heat_maps import HeatMap, encoded_caption, heat_map, heat_maps
from vsetune.board.gallery.retrieved import Hit, Query, Retrieved
from vsetune.data.looking.show import Picture, read_pictures, thumbnail
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.vocabulary import tokenise
from vsetune.errors import DataError
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import ImageInputs
from vsetune.records.studies import Studies
from vsetune.study.asked_photographs import photograph_inputs
from vsetune.study.model_files import MODEL_FILE, CarriedNetwork, carried_trial, load_model
from vsetune.study.recorded import RecordedAttempt, find_attempt, load_recorded
from vsetune.study.recorded_model import (
    Answer,
    SplitIndexes,
    captions_for,
    encoded_captions,
    encoded_images,
    images_for,
)
from vsetune.training.search_index import SearchIndex

KEPT_TRIALS = 3
"""Number of networks in memory, the most recently asked ones."""
_THUMBNAIL = 240
"""Pixels of the longer side of pictures."""


class AskedTrials:
    """The trials of a home by name, loaded when they are asked first. One query is answered at a time."""

    def __init__(self, store: Studies, *, device: torch.device) -> None:
        self._store, self._device = store, device
        self._trials: OrderedDict[str, AskedTrial] = OrderedDict()
        self._lock = Lock()

    def __call__(self, run: str, query: Query) -> Retrieved:
        """run: as of `find_attempt`. Errors as of `find_attempt`, `load_recorded` and `AskedTrial.ask`."""
        with self._lock:
            return self._trial(run).ask(query)

    def _trial(self, run: str) -> AskedTrial:
        attempt = find_attempt(self._store, run, finished=True)
        name = attempt.record.attempt_id
        if name not in self._trials:
            while len(self._trials) >= KEPT_TRIALS:
                self._trials.popitem(last=False)
            self._trials[name] = open_trial(self._store, attempt, device=self._device)
        self._trials.move_to_end(name)
        return self._trials[name]


def open_trial(store: Studies, attempt: RecordedAttempt, *, device: torch.device) -> AskedTrial:
    """A recorded trial, which searches its data set. Errors as of `load_recorded`."""
    start = attempt.record.start
    with TemporaryDirectory() as into:
        trained = load_recorded(store, attempt, device=device, into=Path(into))
    return AskedTrial(carried_trial(f"{start.study}/{start.trial}", trained), loss=start.loss)


def open_model(folder: Path, *, device: torch.device) -> AskedTrial:
    """A model in a folder of `model_folder`. Errors as of `load_model`."""
    return AskedTrial(load_model(folder, device=device))


def model_folder(place: Path) -> Path | None:
    """The folder with the files of a model: the place itself, or inside what MLflow made around it; None without one.
    """
    found = (file for inside in (".", "*", "*/*") for file in sorted(place.glob(f"{inside}/{MODEL_FILE}")))
    return next((file.parent for file in found), None)


class AskedTrial:
    """loss: its name, empty where it is not known."""

    def __init__(self, asked: CarriedNetwork, *, loss: str = "") -> None:
        self._asked, self._loss = asked, loss
        self._indexes = SplitIndexes(asked)

    def ask(self, query: Query) -> Retrieved:
        """What the network retrieves. The split is encoded when it is asked first.

        UsageError for a query that the network cannot read, DataError for a photograph that cannot be decoded and for a
        split that is missing; further errors as of `photograph_inputs`.
        """
        index = self._indexes.of(query.split)
        return self._captions(query, index) if query.photograph is not None else self._images(query, index)

    def _images(self, query: Query, index: SearchIndex) -> Retrieved:
        asked = self._asked
        words = encoded_captions(asked, [query.sentence])
        (answer,) = images_for(asked, index, words, top=query.top)
        dataset = self._dataset()
        pictures, heat = ({}, {}) if dataset is None else self._looks(dataset, index, answer.places, words)
        own = _captions_of(index, answer.places)
        hits = [
            Hit(rank, score, name, own[place], pictures.get(place), heat.get(place))
            for rank, score, name, place in _ranked(answer)
        ]
        return self._retrieved(query, index, len(index.images), hits, notes=[
            *self._unknown_words(query.sentence), *([_NO_PICTURES] if dataset is None else []),
        ])

    def _captions(self, query: Query, index: SearchIndex) -> Retrieved:
        asked = self._asked
        assert query.photograph is not None
        inputs, whole, image = photograph_inputs(asked, query.photograph, query.name)
        encoded = encoded_images(asked, inputs)
        (answer,) = captions_for(asked, index, encoded, top=query.top)
        owner = index.encoded.owner.tolist()
        hits = [
            Hit(rank, score, index.images[owner[place]], [text], heat=self._heat(encoded, whole, index, place))
            for rank, score, text, place in _ranked(answer)
        ]
        photograph = Picture(0, query.name, 0, [], [], None, thumbnail(image, _THUMBNAIL))
        return self._retrieved(query, index, len(index.captions), hits, photograph=photograph)

    def _retrieved(
        self, query: Query, index: SearchIndex, of: int, hits: list[Hit], *, photograph: Picture | None = None,
        notes: list[str] | None = None,
    ) -> Retrieved:
        asked = self._asked
        dataset = Path(asked.trial.data.path).name
        return Retrieved(
            asked.name, asked.described.name, self._loss, dataset, index.split, query, of, hits, photograph, notes or []
        )

    def _dataset(self) -> Dataset | None:
        """None for a model that is away from its data set."""
        try:
            return self._indexes.dataset()
        except DataError:
            if self._asked.index is None:
                raise
            return None

    def _looks(
        self, dataset: Dataset, index: SearchIndex, places: list[int], words: Encoded
    ) -> tuple[dict[int, Picture], dict[int, HeatMap]]:
        """Pictures and heat maps of images, by their indices in the split."""
        asked = self._asked
        pictures = read_pictures(dataset, index.split, places, size=_THUMBNAIL)
        pairs = {place: (place, words) for place in places}
        heat = heat_maps(
            asked.network, dataset, index.split, pairs, images=index.encoded.images, trial=asked.trial,
            device=asked.device,
        )
        return pictures, heat

    def _heat(self, encoded: Encoded, whole: ImageInputs, index: SearchIndex, caption: int) -> HeatMap | None:
        """Over the photograph of the query."""
        asked = self._asked
        words, pixels = encoded_caption(index.encoded, caption), asked.described.spec.reads.pixels
        return heat_map(asked.network, encoded, whole, words, pixels=pixels)

    def _unknown_words(self, sentence: str) -> list[str]:
        known = self._asked.described.words
        unknown = [] if known is None else [word for word in tokenise(sentence) if word not in known]
        return [f"Not in its vocabulary: {', '.join(dict.fromkeys(unknown))}."] if unknown else []


_NO_PICTURES = "The data set of the training is not here, so there are no pictures and no heat maps."


def _ranked(answer: Answer) -> list[tuple[int, float, str, int]]:
    """(rank, score, item, its index) of each item."""
    ranks = range(1, len(answer.items) + 1)
    return list(zip(ranks, answer.scores, answer.items, answer.places, strict=True))


def _captions_of(index: SearchIndex, images: list[int]) -> dict[int, list[str]]:
    """The captions of images, by the image's index."""
    found: dict[int, list[str]] = {image: [] for image in images}
    for caption, image in enumerate(index.encoded.owner.tolist()):
        if image in found:
            found[image].append(index.captions[caption])
    return found
