"""Queries to a trained network that are no part of its data set: a sentence, or the region features of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from vsetune.data.looking.pictures import read_pictures
from vsetune.data.stored.shards import iter_captions
from vsetune.data.stored.tokens import tokenise
from vsetune.errors import DataError, NumericError, UsageError
from vsetune.networks.encoded import Encoded
from vsetune.networks.evaluation_mode import evaluating
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.scoring.device import tower_precision
from vsetune.scoring.pair_scores import pair_scores
from vsetune.scoring.validation import EncodedSplit, encode_split
from vsetune.training.trained import TrainedTrial

_THUMBNAIL = 16


@dataclass(frozen=True)
class Answer:
    """What a query retrieves, best first. items: ids of images as ingested, or texts of captions. scores: larger is
    closer, in the units of the network's similarity."""

    items: list[str]
    scores: list[float]


class Retrieval:
    """Searches one split of the data set on which a network was trained. Encodes it once, when it is first asked."""

    def __init__(self, trained: TrainedTrial, split: str) -> None:
        """DataError for a split that the data set does not have."""
        trained.dataset.split(split)
        self._trained, self._split = trained, split

    def images_for(self, captions: Sequence[str], *, top: int) -> list[Answer]:
        """The images that these sentences retrieve. UsageError for an empty one, or a network that reads parses."""
        if not captions:
            return []
        inputs = self._caption_inputs(captions)
        with evaluating(self._trained.network), self._precision():
            encoded = self._trained.network.encode_captions(inputs)
            scores = self._scores(self._encoded.images, [encoded], torch.arange(len(encoded)))
        best, values = _best(scores.T, top)
        names = self._names({index for row in best for index in row})
        return [Answer([names[index] for index in row], own) for row, own in zip(best, values, strict=True)]

    def captions_for(self, features: Sequence[Any], *, top: int) -> list[Answer]:
        """The captions that images retrieve. features: of each image (regions, width), as the data set's were made.

        UsageError for features of another shape, or a network that reads photographs or boxes.
        """
        if not len(features):
            return []
        inputs = self._image_inputs(features)
        with evaluating(self._trained.network), self._precision():
            encoded = self._trained.network.encode_images(inputs)
            scores = self._scores(encoded, self._encoded.captions, self._encoded.places)
        best, values = _best(scores, top)
        return [Answer([self._texts[index] for index in row], own) for row, own in zip(best, values, strict=True)]

    def _scores(self, images: Encoded, captions: Sequence[Encoded], places: Tensor) -> Tensor:
        """(images, captions)."""
        network, cost = self._trained.network, self._trained.trial.network.pair_cost
        if network.kind == "score":
            return pair_scores(network, images, captions, places.to(images.device), cost=cost)
        return network.similarity(images, captions[0])

    def _caption_inputs(self, captions: Sequence[str]) -> CaptionInputs:
        reads = self._trained.trial.network.reads
        if reads.dependencies or reads.word_pieces is not None:
            raise self._cannot("captions", "parses" if reads.dependencies else "word pieces")
        rows = []
        for place, caption in enumerate(captions):
            words = tokenise(caption) if isinstance(caption, str) else []
            if not words:
                raise UsageError(f"caption {place}: got {caption!r}, need a sentence")
            rows.append(torch.tensor(self._trained.dataset.vocabulary.encode(words)))
        device = self._trained.device
        tokens = pad_sequence(rows, batch_first=True).to(device)
        return CaptionInputs(tokens, torch.tensor([len(row) for row in rows], device=device))

    def _image_inputs(self, features: Sequence[Any]) -> ImageInputs:
        reads, dataset = self._trained.trial.network.reads, self._trained.dataset
        if reads.pixels is not None or (reads.boxes and dataset.manifest.features.boxes):
            raise self._cannot("features of images", "photographs" if reads.pixels is not None else "boxes")
        rows = []
        for place, given in enumerate(features):
            try:
                values = np.array([list(region) for region in given], dtype=np.float32)
            except (TypeError, ValueError) as error:
                raise UsageError(f"image {place}: need (regions, {dataset.width}) numbers ({error})") from error
            is_matrix = values.ndim == 2 and values.shape[1] == dataset.width
            if not is_matrix or not 1 <= len(values) <= dataset.regions:
                raise UsageError(
                    f"image {place}: got features of shape {values.shape}, need (regions, {dataset.width}) with 1 to "
                    f"{dataset.regions} regions, as {dataset.path} has them"
                )
            rows.append(torch.from_numpy(values))
        device = self._trained.device
        counts = torch.tensor([len(row) for row in rows], device=device)
        return ImageInputs(pad_sequence(rows, batch_first=True).to(device), counts)

    def _cannot(self, what: str, reads: str) -> UsageError:
        return UsageError(
            f"network {self._trained.trial.network.name} reads {reads}, which {what} of a query do not have; use "
            "vsetune trial gallery, which takes queries out of the data set"
        )

    def _precision(self) -> Any:
        return tower_precision(self._trained.trial.training, self._trained.device)

    @cached_property
    def _encoded(self) -> EncodedSplit:
        trained = self._trained
        return encode_split(
            trained.network, trained.dataset, self._split, trial=trained.trial, device=trained.device
        )

    @cached_property
    def _texts(self) -> list[str]:
        return list(iter_captions(self._trained.dataset, self._split))

    def _names(self, images: set[int]) -> dict[int, str]:
        found = read_pictures(self._trained.dataset, self._split, images, size=_THUMBNAIL)
        return {index: picture.name for index, picture in found.items()}


def _best(scores: Tensor, top: int) -> tuple[list[list[int]], list[list[float]]]:
    """Of each row the places of its largest scores, and these."""
    if top < 1:
        raise UsageError(f"top: got {top}, need at least 1")
    if not bool(torch.isfinite(scores).all()):
        raise NumericError("the network gives scores that are not finite for this query")
    if scores.shape[1] == 0:
        raise DataError("nothing to search in")
    values, places = scores.float().topk(min(top, scores.shape[1]), dim=1)
    return places.tolist(), values.tolist()
