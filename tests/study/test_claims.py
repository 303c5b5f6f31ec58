"""`study plan`: the differences that a study can claim between tuned losses, and what a wanted one takes."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from logged_studies import Logs, logs
from refusals import refused
from repeated_studies import SEARCHED, cells_of, study_of, trained

from vsetune.config.study.cells import resolve_cells
from vsetune.metrics.repeated_searches import Spread, detectable
from vsetune.study.planning.claims import ASSUMED, Claims, Design, claims_of, recorded_spread

__all__ = ["logs"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    return tmp_path


LOSSES = [{"name": "lmh"}, {"name": "lseh"}, {"name": "lsh", "search": "none"}]
SPREAD = Spread(0.3, 0.4), Spread(0.05, 0.1)


def claims(points: float | None = None, per_cent: float | None = None, **changes: Any) -> Claims:
    """A whole trial takes half an hour."""
    study = study_of(losses=LOSSES, **changes)
    cells = resolve_cells(study, where="test")
    plan = SimpleNamespace(
        cells=[SimpleNamespace(cell=cell.name, trial_seconds=1800.0) for cell in cells]
    )
    return claims_of(study, cells, cast("Any", plan), points=points, per_cent=per_cent, spread=SPREAD)


def test_a_study_with_one_search_or_without_confirming_seeds_claims_nothing() -> None:
    for changes in ({"search": {"repeats": 1}}, {"search": {"repeats": 2}}, {"seeds": [1]}):
        found = claims(**changes)
        assert (found.points, found.per_cent, found.wanted) == (None, None, None)


def test_more_searches_and_seeds_show_smaller_differences() -> None:
    three, five, seeds = (
        cast("float", claims(**changes).points) for changes in ({}, {"search": {"repeats": 5}}, {"seeds": [1, 4, 6]})
    )
    assert three == pytest.approx(detectable(SPREAD[0], repeats=3, seeds=1, level=1 - 0.05 / 2))
    assert five < three
    assert seeds < three
    assert claims().per_cent == pytest.approx(
        100 * (1 - math.exp(-detectable(SPREAD[1], repeats=3, seeds=1, level=1 - 0.05 / 2)))
    )


@pytest.mark.parametrize(("points", "per_cent"), [(0.8, None), (None, 25.0), (0.8, 5.0)])
def test_the_wanted_design_is_the_cheapest_that_shows_the_difference(
    points: float | None, per_cent: float | None
) -> None:
    design = cast("Design", claims(points, per_cent).wanted)

    def shown(repeats: int, seeds: int) -> bool:
        found = claims(search={"repeats": repeats}, seeds=list(range(seeds + 1)))
        return (points is None or found.points <= points) and (  # type: ignore[operator]
            per_cent is None or found.per_cent <= per_cent  # type: ignore[operator]
        )

    assert shown(design.repeats, design.seeds)
    assert design.trials == design.repeats * (3 * 2 + 2 * design.seeds + 1 + design.seeds)
    assert (design.epochs, design.hours) == (2 * design.trials, design.trials / 2)
    cheaper = [
        (repeats, seeds) for repeats in range(3, design.repeats + 3) for seeds in range(1, 6)
        if repeats * (3 * 2 + 2 * seeds + 1 + seeds) < design.trials
    ]
    assert not [each for each in cheaper if shown(*each)]


def test_a_difference_that_no_practical_number_of_searches_shows_has_no_design() -> None:
    assert claims(0.01).wanted is None


def test_deviations_are_those_of_a_recorded_study(logs: Logs, home: Path) -> None:
    study = study_of(search=SEARCHED, losses=[{"name": "lmh"}], seeds=[1, 4, 6])
    trained(study, logs.opened(study))
    logs.close()
    height, pace = recorded_spread("tiny")
    assert height.seed == pytest.approx(math.sqrt((0.02 + 0.005 + 0.005) / 3), rel=0.5)  # a tenth of a point a seed
    assert height.search > 0
    assert pace.search == pytest.approx(0, abs=1e-9)  # all reach the target at the only validation
    assert len(cells_of(study)) == 3
    assert recorded_spread("tiny") != ASSUMED


def test_a_study_without_repeats_shows_no_deviation(logs: Logs, home: Path) -> None:
    study = study_of(search={"repeats": 1}, losses=[{"name": "lmh"}])
    trained(study, logs.opened(study))
    logs.close()
    with refused("VSE-S085", study="tiny"):
        recorded_spread("tiny")
