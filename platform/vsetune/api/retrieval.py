"""A trained network that is asked: vectors of images and captions, search by a sentence or an image."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vsetune.api import messages
from vsetune.errors import UsageError

if TYPE_CHECKING:
    import pandas

    from vsetune.study.recorded_model import RecordedModel
    from vsetune.training.trained import TrainedTrial

_THUMBNAIL = 120
"""Pixels of the longer side."""


@dataclass(frozen=True)
class Embedded:
    """A split as the network sees it. images: (N, D) or (N, K, D) float32. captions: (M, D), likewise. owner: (M,)
    int64, row of each caption's image. image_names: N ids as ingested. texts: M captions."""

    images: np.ndarray
    captions: np.ndarray
    owner: np.ndarray
    image_names: list[str]
    texts: list[str]


@dataclass(frozen=True)
class Found:
    """What a search has found, best first. kind: `image` or `caption`. items: ids of images as ingested, or texts.

    scores: larger is closer, in the units of the network's similarity. pictures: a JPEG per image where the data
    set has photographs.
    """

    query: str
    kind: str
    items: list[str]
    scores: list[float]
    pictures: list[bytes | None]

    @property
    def table(self) -> pandas.DataFrame:
        """Columns `image` or `caption`, and `score`."""
        import pandas

        return pandas.DataFrame({self.kind: self.items, "score": self.scores})

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"{self.query}\n{self.table}"

    def _repr_html_(self) -> str:
        cells = []
        for item, score, picture in zip(self.items, self.scores, self.pictures, strict=True):
            shown = "" if picture is None else (
                f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(picture).decode()}"><br>'
            )
            cells.append(f"<td>{shown}{html.escape(item)}<br>{score:.3f}</td>")
        rows = "".join(cells) if self.kind == "image" else "</tr><tr>".join(cells)
        return f"<p>{html.escape(self.query)}</p><table><tr>{rows}</tr></table>"


class Retrieval:
    """Questions to the network of a trial, on its data set. trained: loaded at the first question."""

    def __init__(self, name: str, trained: TrainedTrial) -> None:
        from vsetune.study.model_files import carried
        from vsetune.study.recorded_model import RecordedModel

        self.name, self._dataset = name, trained.dataset
        self._model: RecordedModel = RecordedModel(carried(trained, name=name))

    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        """(m, D), or (m, K, D) with several embeddings per item. See `Trial.encode_captions`."""
        return self._vectors({"caption": list(captions)})

    def encode_images(self, features: Sequence[Any]) -> np.ndarray:
        """(n, D), likewise. See `Trial.encode_images`."""
        return self._vectors({"image_features": list(features)})

    def search(self, sentence: str | None, image: Any, *, top: int, split: str | None) -> Found:
        """See `Trial.search`."""
        if (sentence is None) == (image is None):
            raise UsageError(messages.NO_QUERY(got="both" if sentence is not None else "neither"))
        if isinstance(image, str):
            return self._captions_of(image, top=top, split=split)
        query = {"caption": [sentence]} if sentence is not None else {"image_features": [image]}
        (answer,) = self._model.predict(query, {"top": top, "split": split or ""})
        if sentence is None:
            return Found("an image", "caption", answer["items"], answer["scores"], [None] * len(answer["items"]))
        pictures = self._pictures(answer["items"], split or "")
        return Found(sentence, "image", answer["items"], answer["scores"], pictures)

    def embed(self, split: str | None) -> Embedded:
        """See `Trial.embed`."""
        from vsetune.networks.encoded import joined

        index = self._model.index(split or "")
        encoded = index.encoded
        self._model.require_embeddings()
        captions = joined(encoded.captions).vectors.cpu().numpy()
        in_order = np.empty_like(captions)
        in_order[encoded.places.cpu().numpy()] = captions
        return Embedded(
            encoded.images.vectors.cpu().numpy(), in_order, encoded.owner.cpu().numpy(), index.images, index.captions
        )

    def _vectors(self, rows: dict[str, list[Any]]) -> np.ndarray:
        answers = self._model.predict(rows, {"answer": "embeddings"})
        return np.array([answer["embedding"] for answer in answers], dtype=np.float32)

    def _captions_of(self, image: str, *, top: int, split: str | None) -> Found:
        index = self._model.index(split or "")
        if image not in index.images:
            raise UsageError(messages.NO_SUCH_IMAGE(trial=self.name, got=image, split=index.split))
        place = index.images.index(image)
        answer = self._model.captions_of(place, split=split or "", top=top)
        return Found(f"image {image}", "caption", answer.items, answer.scores, [None] * len(answer.items))

    def _pictures(self, names: Sequence[str], split: str) -> list[bytes | None]:
        from vsetune.data.looking.show import read_pictures

        index = self._model.index(split)
        places = [index.images.index(name) for name in names]
        found = read_pictures(self._dataset, index.split, set(places), size=_THUMBNAIL)
        thumbnails = [found[place].thumbnail for place in places]
        return [None if each is None else each.jpeg for each in thumbnails]
