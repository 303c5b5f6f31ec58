"""Sentences that a network writes for images of a split, words it finds wrong, and wrong captions it corrects.

For networks with `sentence_writing` (TAGS-DC, Fan et al. 2022, Section 2 and Figure 4). Plain data; `gallery_page`
renders it. Each caption is sampled with its own seed, so its sentences do not depend on anything else that is shown.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from vsetune.config.study.gallery_settings import GallerySpec
from vsetune.data.looking.pictures import Picture
from vsetune.data.looking.readable_ids import ReadableIds
from vsetune.explanations.caption_looks import CaptionLook, Steps, Written
from vsetune.explanations.rankings import HardestNegative, Ranking
from vsetune.networks.evaluation_mode import evaluating
from vsetune.networks.inputs import CaptionInputs
from vsetune.scoring.network_inputs import caption_inputs
from vsetune.scoring.validation import EncodedSplit, split_batches
from vsetune.training.trained import TrainedTrial


@dataclass(frozen=True)
class Correction:
    """A corrected caption of another image; indices in the split. true: the image's own caption with the highest score.
    """

    image: int
    true: int
    true_score: float
    caption: int
    steps: Steps


@dataclass(frozen=True)
class SentenceFindings:
    """about: how the network writes. notes: one sentence for each thing that is not shown, with the reason."""

    about: str
    notes: list[str]
    written: list[Written]
    corrections: list[Correction]


@dataclass(frozen=True)
class Chosen:
    """captions: (image, caption) pairs to write sentences for. wrong: image queries, each with a caption to correct."""

    captions: list[tuple[int, int]]
    wrong: list[HardestNegative]

    @property
    def images(self) -> set[int]:
        """Images that are shown."""
        return {image for image, _ in self.captions} | {each.query for each in self.wrong}

    @property
    def all_captions(self) -> set[int]:
        """Captions that are read."""
        return {caption for _, caption in self.captions} | {each.wrong for each in self.wrong}


def choose(
    owner: Sequence[int], images: int, wanted: GallerySpec, hard: Sequence[HardestNegative], drawn: Sequence[Ranking]
) -> Chosen:
    """Images and one caption of each, sampled with the seed, and wrong captions to correct.

    hard: image queries, widest gap first; their wrong captions come first. drawn: image queries of the gallery; their
    wrong captions follow if `hard` has too few.
    """
    rng = random.Random(f"written/{wanted.seed}")
    own: dict[int, list[int]] = {}
    for caption, image in enumerate(owner):
        own.setdefault(image, []).append(caption)
    chosen = sorted(rng.sample(range(images), min(images, wanted.written)))
    wrong = {each.query: each for each in hard}
    for ranking in drawn:
        if ranking.hardest_negative is not None:
            true, negative = ranking.best_true, ranking.hardest_negative
            each = HardestNegative(ranking.query, true.index, true.score, negative.index, negative.score)
            wrong.setdefault(ranking.query, each)
    return Chosen([(image, rng.choice(own[image])) for image in chosen], list(wrong.values())[: wanted.corrected])


def sentence_findings(
    trained: TrainedTrial, split: str, wanted: GallerySpec, chosen: Chosen, *, encoded: EncodedSplit,
    pictures: Mapping[int, Picture],
) -> SentenceFindings | None:
    """Sentences and corrections; None for a network that neither writes nor corrects.

    encoded: the split, encoded by this network. pictures: of the owners of all chosen captions. Sampling leaves torch's
    random generators unchanged.
    """
    writing = trained.network.sentence_writing()
    if writing is None:
        return None
    reader = ReadableIds(trained.dataset, trained.trial.network.reads.word_pieces)
    captions = _captions_for_masking(trained, split, chosen.all_captions, encoded.owner.tolist())
    written, corrections = [], []

    def look_at(image: int, caption: int) -> CaptionLook:
        picture = pictures[int(encoded.owner[caption])]
        return CaptionLook(writing, reader, encoded.images[image : image + 1], picture, caption, captions[caption])

    with evaluating(trained.network):
        for image, caption in chosen.captions:
            look = look_at(image, caption)
            with _own_draws(f"written/{wanted.seed}/{caption}", trained.device):
                found = writing.write(look.image, look.inputs)
            if found is not None:
                written.append(look.written(found, image, most=wanted.sentences))
        for each in chosen.wrong:
            steps = look_at(each.query, each.wrong).corrected()
            if steps is not None:
                corrections.append(Correction(each.query, each.true, each.true_score, each.wrong, steps))
    notes = [*writing.lacks, *_notes(trained, captions, written)]
    return SentenceFindings(writing.about, notes, written, corrections)


def _notes(trained: TrainedTrial, captions: Mapping[int, CaptionInputs], written: Sequence[Written]) -> Iterator[str]:
    if written and all(each.phrases is None for each in captions.values()):
        if trained.trial.network.reads.phrases:
            yield (
                "The data set has no phrases of its captions, so single words are masked (vsetune data parse FOLDER "
                "--phrases adds them)."
            )
        else:
            yield "Its training read no phrases, so single words are masked."
    if any(phase.network for phase in trained.trial.training.phases):
        yield "Shown are the best weights: a head whose loss begins in a later phase than these has not learned yet."


def _captions_for_masking(
    trained: TrainedTrial, split: str, captions: Collection[int], owner: Sequence[int]
) -> dict[int, CaptionInputs]:
    """Inputs by caption, without padding, with its phrases and the other captions of its image."""
    found: dict[int, CaptionInputs] = {}
    images = sorted({owner[caption] for caption in captions})
    if not images:
        return found
    reads, threads = replace(trained.trial.network.reads, siblings=True), trained.trial.training.loader_workers
    with split_batches(
        trained.dataset, split, reads=reads, threads=threads, images=images, for_masking=True
    ) as batches:
        for batch in batches:
            inputs = caption_inputs(batch.to(trained.device))
            for row, caption in enumerate(batch.caption_ids.tolist()):
                if caption in captions:
                    found[caption] = _one(inputs, row)
    return found


def _one(inputs: CaptionInputs, row: int) -> CaptionInputs:
    length, here = int(inputs.lengths[row]), slice(row, row + 1)
    phrases, siblings = inputs.phrases, inputs.siblings
    return CaptionInputs(
        inputs.tokens[here, :length], inputs.lengths[here],
        phrases=None if phrases is None else phrases[here, :, :length],
        siblings=None if siblings is None else siblings[here],
    )


@contextmanager
def _own_draws(name: str, device: torch.device) -> Iterator[None]:
    """Context in which torch samples with a seed derived from the name; its generators are restored afterwards."""
    seed = random.Random(name).getrandbits(63)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
