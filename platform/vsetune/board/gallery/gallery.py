"""Rankings, heat maps and sentences of a trained network on a split. Plain data; `gallery_page` renders it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from vsetune.board.gallery.heat_maps import HeatMap, caption_pairs, heat_maps
from vsetune.board.gallery.rankings import (
    Candidate,
    HardestNegative,
    Ranking,
    caption_rankings,
    hardest_negatives,
    image_rankings,
)
from vsetune.board.gallery.written_sentences import GallerySentences, chosen_captions, written_sentences
from vsetune.config.study.evaluation_settings import GallerySpec
from vsetune.data.looking.show import Picture, read_pictures
from vsetune.data.stored.manifest import SplitInfo
from vsetune.metrics.recalls import RetrievalScores, owner_scores
from vsetune.networks.network_base import evaluating
from vsetune.training.trained import TrainedTrial
from vsetune.training.validation import Report, encode_split, split_scores


@dataclass(frozen=True)
class Gallery:
    """captions, images: rankings of queries sampled from the split. hard_captions, hard_images: the queries of the
    whole split whose hardest negative outranks the true item by the widest gap. heat: by caption, over its own image.

    pictures: by index in the split, every image that the gallery refers to. owner: image of each caption of the split.
    sentences: written by the network; None for a network that does not write.
    """

    split: str
    scores: RetrievalScores
    captions: list[Ranking]
    images: list[Ranking]
    hard_captions: list[HardestNegative]
    hard_images: list[HardestNegative]
    heat: dict[int, HeatMap]
    pictures: dict[int, Picture]
    owner: list[int]
    sentences: GallerySentences | None = None

    def picture_of(self, caption: int) -> Picture:
        """The image that a caption belongs to."""
        return self.pictures[self.owner[caption]]

    def caption(self, index: int) -> str:
        """The text of a caption."""
        picture = self.picture_of(index)
        return picture.captions[index - picture.first_caption]

    def words(self, caption: int) -> list[str]:
        """One word per token, start and end included."""
        picture = self.picture_of(caption)
        return ["start", *picture.words[caption - picture.first_caption], "end"]


def make_gallery(
    trained: TrainedTrial, split: str, wanted: GallerySpec, *, report: Report | None = None
) -> Gallery:
    """report: called with the pairs scored and all pairs, by networks that score pairs.

    Raises NumericError if any similarity is not finite, DataError for a missing split or damaged shards.
    """
    network, dataset, trial, device = trained.network, trained.dataset, trained.trial, trained.device
    captions, images = _drawn(dataset.split(split), wanted)
    with evaluating(network):
        encoded = encode_split(network, dataset, split, trial=trial, device=device)
        scores = split_scores(network, encoded, trial=trial, report=report)
        hard_captions, hard_images = hardest_negatives(scores, encoded.owner, most=wanted.hardest)
        by_caption = caption_rankings(scores, encoded.owner, captions, top=wanted.top)
        by_image = image_rankings(scores, encoded.owner, images, top=wanted.top)
        found = owner_scores(scores, encoded.owner)
    heat = heat_maps(
        network, dataset, split, caption_pairs(encoded, captions), images=encoded.images, trial=trial, device=device
    )
    owner = encoded.owner.tolist()
    shown = set(_images_shown(by_caption, by_image, hard_captions, hard_images, owner))
    writes = network.sentence_writing() is not None
    chosen = chosen_captions(owner, len(encoded.images), wanted) if writes else {}
    pictures = read_pictures(dataset, split, shown | set(chosen), size=wanted.thumbnail)
    sentences = written_sentences(trained, split, wanted, chosen, encoded=encoded, pictures=pictures)
    return Gallery(split, found, by_caption, by_image, hard_captions, hard_images, heat, pictures, owner, sentences)


def _drawn(info: SplitInfo, wanted: GallerySpec) -> tuple[list[int], list[int]]:
    """Captions and images to show, in the order of the split. Each list is sampled separately, so that changing the
    number of one does not change the other."""
    drawn = []
    for name, size, number in (("captions", info.captions, wanted.captions), ("images", info.images, wanted.images)):
        rng = random.Random(f"{name}/{wanted.seed}")
        drawn.append(sorted(rng.sample(range(size), min(size, number))))
    return drawn[0], drawn[1]


def _images_shown(
    by_caption: Iterable[Ranking], by_image: Iterable[Ranking], hard_captions: Iterable[HardestNegative],
    hard_images: Iterable[HardestNegative], owner: list[int],
) -> Iterable[int]:
    """Every image that is shown, and every image with a shown caption."""
    for ranking in by_caption:
        yield owner[ranking.query]
        yield from (item.index for item in _items(ranking))
    for ranking in by_image:
        yield ranking.query
        yield from (owner[item.index] for item in _items(ranking))
    for hard in hard_captions:
        yield from (owner[hard.query], hard.wrong)
    for hard in hard_images:
        yield from (hard.query, owner[hard.wrong])


def _items(ranking: Ranking) -> Iterable[Candidate]:
    yield from ranking.top
    yield ranking.best_true
    if ranking.hardest_negative is not None:
        yield ranking.hardest_negative
