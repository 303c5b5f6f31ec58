"""The answers of one or two trials to a query as an HTML page without scripts; served, it has a form for the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vsetune.board.gallery.drawn_heat import DrawnHeat, data_uri, drawn_heat, score_text, size_of
from vsetune.board.gallery.retrieved import Hit, Query, Retrieved
from vsetune.board.page_templates import render

_EXPLAINED = {
    "attention": "Where words attend to regions: mean attention of the sentence's words to each region, the weights "
    "that the score is computed with.",
    "gradient": "Of other networks: gradient of the score with respect to the features of each region, times the "
    "features, clipped at 0.",
}


@dataclass(frozen=True)
class ListedTrial:
    """A trial to choose. name: STUDY/TRIAL. about: cell and M-Recall."""

    name: str
    study: str
    about: str


@dataclass(frozen=True)
class Form:
    """What a served page offers, and what was chosen. trial, against: names, `against` empty for one trial alone.

    megabytes: largest photograph.
    """

    trials: Sequence[ListedTrial]
    trial: str
    against: str
    query: Query
    megabytes: int

    def by_study(self) -> dict[str, list[ListedTrial]]:
        """The trials of each study, and the chosen ones even where they are not listed."""
        listed = {each.name for each in self.trials}
        chosen = [name for name in (self.trial, self.against) if name and name not in listed]
        found: dict[str, list[ListedTrial]] = {}
        more = [ListedTrial(name, name.partition("/")[0], "") for name in dict.fromkeys(chosen)]
        for each in [*self.trials, *more]:
            found.setdefault(each.study, []).append(each)
        return found


def to_html(answers: Sequence[Retrieved], *, form: Form | None = None, problem: str = "") -> str:
    """The whole page as text. problem: why there is no answer. Pictures are inside the page."""
    bases = {hit.heat.basis for answer in answers for hit in answer.hits if hit.heat is not None}
    return render(
        "retrieval.html.j2", answers=answers, form=form, problem=problem, title=_title(answers),
        explained=[_EXPLAINED[basis] for basis in sorted(bases)], heat_of=_heat, elsewhere=_elsewhere,
        data_uri=data_uri, size=size_of, score=score_text,
    )


def _title(answers: Sequence[Retrieved]) -> str:
    if not answers:
        return "Ask a trained model"
    query = answers[0].query
    return query.name if query.photograph is not None else query.sentence


def _heat(answer: Retrieved, hit: Hit) -> DrawnHeat | None:
    """Over the image of the hit, or over the photograph of the query; None without a heat map or a picture."""
    picture = hit.picture or answer.photograph
    return None if hit.heat is None or picture is None else drawn_heat(hit.heat, picture)


def _elsewhere(answers: Sequence[Retrieved], answer: Retrieved, hit: Hit) -> str:
    """Where the other trial has this item; empty for one trial alone."""
    ranks = [
        next((f"rank {each.rank}" for each in other.hits if (each.name, each.captions) == (hit.name, hit.captions)),
             f"below rank {len(other.hits)}")
        for other in answers if other is not answer
    ]
    return f"in the other: {', '.join(ranks)}" if ranks else ""
