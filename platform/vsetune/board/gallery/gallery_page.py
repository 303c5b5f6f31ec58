"""The gallery as one self-contained HTML page: it has no scripts, makes no requests and escapes user text.

The page contains every picture once and refers to it wherever it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vsetune.board.gallery.drawn_heat import data_uri, drawn_heat, score_text, size_of
from vsetune.board.gallery.gallery import Gallery
from vsetune.board.gallery.rankings import Candidate, Ranking
from vsetune.board.page_templates import render
from vsetune.networks.sentence_writing import Verdict

VERDICTS: dict[Verdict, str] = {
    "kept": "kept",
    "not_among_best": "filtered: not among the best",
    "identical": "filtered: identical",
    "duplicate": "filtered: duplicate",
    "false_negative": "filtered: false negative",
}

Mark = Literal["true", "hardest", ""]


@dataclass(frozen=True)
class About:
    """Description of the trial on the page. facts: (name, value) pairs for the footer."""

    title: str
    network: str
    loss: str
    dataset: str
    facts: list[tuple[str, str]]


def to_html(gallery: Gallery, about: About) -> str:
    """The whole page as text. It needs no network and no JavaScript."""
    shown = _shown(gallery)
    return render(
        "gallery.html.j2", about=about, gallery=gallery, pictures=[gallery.pictures[index] for index in shown],
        heat={
            caption: drawn_heat(heat, gallery.picture_of(caption), gallery.words(caption))
            for caption, heat in gallery.heat.items()
        },
        bases=sorted({heat.basis for heat in gallery.heat.values()}),
        has_pictures=any(picture.thumbnail is not None for picture in gallery.pictures.values()),
        verdicts=VERDICTS, data_uri=data_uri, size=size_of, score=score_text, candidates=_candidates,
        mark=_mark,
    )


def _shown(gallery: Gallery) -> list[int]:
    """Indices of the pictures that the page shows; for other images it shows captions only."""
    hard = [index for each in gallery.hard_captions for index in (each.true, each.wrong)]
    hard += [each.query for each in gallery.hard_images]
    captions = [gallery.owner[ranking.query] for ranking in gallery.captions]
    captions += [item.index for ranking in gallery.captions for item in _candidates(ranking)]
    written = [] if gallery.sentences is None else [each.image for each in gallery.sentences.written]
    return sorted({*hard, *captions, *written, *(ranking.query for ranking in gallery.images)})


def _candidates(ranking: Ranking) -> list[Candidate]:
    """The top, then the best true item and the hardest negative if the top lacks them."""
    more = [ranking.best_true] + ([] if ranking.hardest_negative is None else [ranking.hardest_negative])
    beyond = {item.rank: item for item in more if item.rank > len(ranking.top)}
    return ranking.top + [beyond[rank] for rank in sorted(beyond)]


def _mark(item: Candidate, ranking: Ranking) -> Mark:
    if item.is_true:
        return "true"
    return "hardest" if item == ranking.hardest_negative else ""
