"""A trained network that is asked: vectors of images and captions, search by a sentence or an image."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vsetune.errors import UsageError

if TYPE_CHECKING:
    import pandas

    from vsetune.networks.encoded import Encoded
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
            name = html.escape(item)
            shown = "" if picture is None else (
                f'<img alt="image {name}" src="data:image/jpeg;base64,{base64.b64encode(picture).decode()}"><br>'
            )
            cells.append(f"<td>{shown}{name}<br>{score:.3f}</td>")
        rows = "".join(cells) if self.kind == "image" else "</tr><tr>".join(cells)
        return f"<p>{html.escape(self.query)}</p><table><tr>{rows}</tr></table>"


class Retrieval:
    """Questions to the network of a trial, on its data set. trained: with its best weights."""

    def __init__(self, name: str, trained: TrainedTrial) -> None:
        from vsetune.study.model_files import carried_trial
        from vsetune.study.recorded_model import SplitIndexes

        self._asked = carried_trial(name, trained)
        self._indexes = SplitIndexes(self._asked)

    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        """See `Trial.encode_captions`."""
        from vsetune.study.recorded_model import embeddings, encoded_captions

        return np.array(embeddings(self._asked, encoded_captions(self._asked, captions)), dtype=np.float32)

    def encode_images(self, images: Sequence[Any]) -> np.ndarray:
        """See `Trial.encode_images`."""
        from vsetune.study.recorded_model import embeddings

        return np.array([embeddings(self._asked, self._encoded(image))[0] for image in images], dtype=np.float32)

    def search(self, sentence: str | None, image: Any, *, top: int, split: str | None) -> Found:
        """See `Trial.search`."""
        from vsetune.study.recorded_model import captions_for, encoded_captions, images_for

        if (sentence is None) == (image is None):
            raise UsageError(
                "VSE-A006", "search: got {got}, need a sentence or `image=`",
                got="both" if sentence is not None else "neither",
            )
        index = self._indexes.of(split or "")
        if sentence is not None:
            (answer,) = images_for(self._asked, index, encoded_captions(self._asked, [sentence]), top=top)
            pictures = self._pictures(index.split, answer.places)
            return Found(sentence, "image", answer.items, answer.scores, pictures)
        is_known = isinstance(image, str) and image in index.images
        place = index.images.index(image) if is_known else 0
        encoded = index.encoded.images[place : place + 1] if is_known else self._encoded(image, split=index.split)
        (answer,) = captions_for(self._asked, index, encoded, top=top)
        title = f"image {image}" if isinstance(image, str | Path) else "an image"
        return Found(title, "caption", answer.items, answer.scores, [None] * len(answer.items))

    def embed(self, split: str | None) -> Embedded:
        """See `Trial.embed`."""
        from vsetune.networks.encoded import joined
        from vsetune.study.recorded_model import require_embeddings

        require_embeddings(self._asked)
        index = self._indexes.of(split or "")
        encoded = index.encoded
        captions = joined(encoded.captions).vectors.cpu().numpy()
        in_order = np.empty_like(captions)
        in_order[encoded.places.cpu().numpy()] = captions
        return Embedded(
            encoded.images.vectors.cpu().numpy(), in_order, encoded.owner.cpu().numpy(), index.images, index.captions
        )

    def _encoded(self, image: Any, *, split: str = "") -> Encoded:
        """One image that is not of a split: a photograph, or features. split: where its id was looked for first."""
        from PIL import Image

        from vsetune.data.making.raw import decode_image, png_bytes
        from vsetune.study.asked_photographs import photograph_inputs
        from vsetune.study.recorded_model import encoded_images, feature_inputs

        content, name = image, "photograph"
        if isinstance(image, str | Path):
            if not Path(image).is_file():
                raise UsageError(
                    "VSE-A005", "{trial}: got image {got!r}, need the id of an image of split {split}, a photograph, "
                    "or features", trial=self._asked.name, got=str(image), split=split,
                )
            content, name = Path(image).read_bytes(), str(image)
        elif isinstance(image, Image.Image):
            content = png_bytes(decode_image(image, place="photograph"))
        if not isinstance(content, bytes):
            return encoded_images(self._asked, feature_inputs(self._asked, [content]))
        inputs, _, _ = photograph_inputs(self._asked, content, name)
        return encoded_images(self._asked, inputs)

    def _pictures(self, split: str, places: Sequence[int]) -> list[bytes | None]:
        from vsetune.data.looking.show import read_pictures

        found = read_pictures(self._indexes.dataset(), split, set(places), size=_THUMBNAIL)
        thumbnails = [found[place].thumbnail for place in places]
        return [None if each is None else each.jpeg for each in thumbnails]
