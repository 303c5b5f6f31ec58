"""A query to a trained network and what it retrieves. Plain data; `retrieval_page` renders it."""

from __future__ import annotations

from dataclasses import dataclass, field

from vsetune.board.gallery.heat_maps import HeatMap
from vsetune.data.looking.show import Picture


@dataclass(frozen=True)
class Query:
    """A sentence, which retrieves images, or a photograph, which retrieves captions.

    photograph: an encoded image of any size. name: of its file, for messages. split: to search; empty: the one that
    the trial was scored on. top: number of items, at least 1.
    """

    sentence: str = ""
    photograph: bytes | None = None
    name: str = "photograph"
    split: str = ""
    top: int = 10


@dataclass(frozen=True)
class Hit:
    """An item that was retrieved. rank: from 1. name: id of the image, or of the image that the caption belongs to.

    captions: all of the image, or the one caption. picture: of the image, None for a caption and where no data set is.
    heat: over this image, or over the photograph of the query; None where the network gives none.
    """

    rank: int
    score: float
    name: str
    captions: list[str]
    picture: Picture | None = None
    heat: HeatMap | None = None


@dataclass(frozen=True)
class Retrieved:
    """The answer of one trial. trial: STUDY/TRIAL. loss: empty where it is not known. of: all items that were compared.

    photograph: that of the query, None for a sentence. notes: sentences on what limits the answer.
    """

    trial: str
    network: str
    loss: str
    dataset: str
    split: str
    query: Query
    of: int
    hits: list[Hit]
    photograph: Picture | None = None
    notes: list[str] = field(default_factory=list)
