"""Queries to a trained network from outside its data set: a sentence, or the region features of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from vsetune.errors import DataError, NumericError, UsageError
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import evaluating
from vsetune.study.model_files import CarriedNetwork
from vsetune.training.search_index import SearchIndex
from vsetune.training.validation import pair_scores

_EMPTY = 2
"""Number of ids of a sentence without words: start and end."""


@dataclass(frozen=True)
class Answer:
    """The items that a query retrieves, best first. items: ids of images as ingested, or texts of captions. scores:
    larger is closer, in the units of the network's similarity."""

    items: list[str]
    scores: list[float]


def encoded_captions(asked: CarriedNetwork, captions: Sequence[str]) -> Encoded:
    """Sentences, encoded. UsageError for an empty sentence, or a network that reads parses."""
    if asked.described.spec.reads.dependencies:
        raise _cannot(asked, "parses, which captions of a query do not have", "captions")
    rows = []
    for place, caption in enumerate(captions):
        ids = asked.encode(caption)
        if len(ids) <= _EMPTY:
            raise UsageError(f"caption {place}: got {caption!r}, need a sentence")
        rows.append(torch.tensor(ids))
    tokens = pad_sequence(rows, batch_first=True).to(asked.device)
    lengths = torch.tensor([len(row) for row in rows], device=asked.device)
    with evaluating(asked.network):
        return asked.network.encode_captions(CaptionInputs(tokens, lengths))


def encoded_images(asked: CarriedNetwork, features: Sequence[Any]) -> Encoded:
    """Images, encoded. features: of each image (regions, width), extracted as for the data set.

    UsageError for features of another shape, or a network that reads photographs or boxes.
    """
    held = asked.described
    if held.spec.reads.pixels is not None:
        raise _cannot(asked, "photographs, which features of a query are not", "images")
    if held.spec.reads.boxes and held.boxes:
        raise _cannot(asked, "boxes of regions, which features of a query do not have", "images")
    rows = []
    for place, given in enumerate(features):
        try:
            values = np.array([list(region) for region in given], dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise UsageError(f"image {place}: need (regions, {held.width}) numbers ({error})") from error
        is_matrix = values.ndim == 2 and values.shape[1] == held.width
        if not is_matrix or not 1 <= len(values) <= held.regions:
            raise UsageError(
                f"image {place}: got features of shape {values.shape}, need (regions, {held.width}) with 1 to "
                f"{held.regions} regions, as {asked.name} was trained with"
            )
        rows.append(torch.from_numpy(values))
    counts = torch.tensor([len(row) for row in rows], device=asked.device)
    with evaluating(asked.network):
        return asked.network.encode_images(ImageInputs(pad_sequence(rows, batch_first=True).to(asked.device), counts))


def embeddings(asked: CarriedNetwork, items: Encoded) -> list[Any]:
    """The vector or vectors of each item that the network compares. UsageError for a network that scores pairs."""
    if asked.network.kind == "score":
        raise UsageError(
            f"network {asked.described.name} scores pairs and has no embedding of one item; ask for items (answer: "
            "items)"
        )
    return list(items.vectors.tolist())


def images_for(asked: CarriedNetwork, index: SearchIndex, captions: Encoded, *, top: int) -> list[Answer]:
    """The images that captions retrieve."""
    places = torch.arange(len(captions), device=asked.device)
    scores = _scores(asked, index.encoded.images, [captions], places)
    return _best(scores.T, index.images, top)


def captions_for(asked: CarriedNetwork, index: SearchIndex, images: Encoded, *, top: int) -> list[Answer]:
    """The captions that images retrieve."""
    return _best(_scores(asked, images, index.encoded.captions, index.encoded.places), index.captions, top)


def _scores(asked: CarriedNetwork, images: Encoded, captions: Sequence[Encoded], places: Tensor) -> Tensor:
    """(images, captions) scores."""
    with evaluating(asked.network):
        if asked.network.kind == "score":
            return pair_scores(asked.network, images, captions, places, cost=asked.trial.network.pair_cost)
        return asked.network.similarity(images, captions[0])


def _best(scores: Tensor, names: Sequence[str], top: int) -> list[Answer]:
    """The names and values of the largest scores of each row. UsageError, NumericError or DataError for a bad `top`,
    scores that are not finite, or an empty index."""
    if top < 1:
        raise UsageError(f"top: got {top}, need at least 1")
    if not bool(torch.isfinite(scores).all()):
        raise NumericError("the network gives scores that are not finite for this query")
    if scores.shape[1] == 0:
        raise DataError("nothing to search in")
    values, places = scores.float().topk(min(top, scores.shape[1]), dim=1)
    rows = zip(places.tolist(), values.tolist(), strict=True)
    return [Answer([names[place] for place in row], own) for row, own in rows]


def _cannot(asked: CarriedNetwork, reads: str, what: str) -> UsageError:
    other = "captions" if what == "images" else "features of images"
    return UsageError(
        f"network {asked.described.name} reads {reads}: as a model it is asked with {other} alone; vsetune trial "
        f"gallery takes {what} out of the data set"
    )
