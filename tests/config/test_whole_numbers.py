"""A setting that is annotated as a whole number is searched over whole numbers, wherever its range stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, Optional, get_args

import pytest
from plugin_folders import LOSS, SPEC, write_loss
from pydantic import Field, PositiveInt, StrictInt
from refusals import refused
from searches_here import SearchHere
from tiny_studies import tiny_study
from typing_extensions import TypeAliasType

from vsetune.config.plugins import forget_plugins, load_plugin
from vsetune.config.spec.base import Choices, Count, Range, Spec, tunable, tunables
from vsetune.config.study.cells import Cell, refusal, resolve_cells
from vsetune.config.study.domains import clipped, contains, domains_of, values_to_check
from vsetune.config.study.study_spec import SearchSpec, StudySpec
from vsetune.records.writer import StudyWriter

RAMP = "    ramp_steps: int = tunable(200, Range(low=50, high=400), ge=1, description='steps of the ramp')\n"
SAMPLERS = get_args(SearchSpec.model_fields["sampler"].annotation)
Nested = Annotated[Annotated[int, Field(ge=0)], Field(le=1000)]
Alias = TypeAliasType("Alias", Annotated[int, Field(ge=0)])
Named = NewType("Named", int)


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@pytest.fixture(autouse=True)
def _own_components_only() -> Iterator[None]:
    yield
    forget_plugins()


def spec_of(annotation: Any) -> type[Spec]:
    searched = tunable(2, Range(low=1, high=8), description="something")
    return type("Made", (Spec,), {"__annotations__": {"size": annotation}, "size": searched, "__module__": __name__})


@pytest.mark.parametrize("annotation", [
    int, Count, Nested, PositiveInt, StrictInt, Alias, Named, Level, int | None, None | int, Optional[int],  # noqa: UP045
    Count | None, Optional[Annotated[int, Field(ge=1)]], Annotated[int | None, Field(ge=1)],  # noqa: UP045
    Annotated[Nested | None, {"unhashable": "note"}], int | Literal["all"], Literal[1, 2, 4, 8], Alias | None,
])
def test_whole_numbers_follow_from_the_annotation_in_the_spec_and_in_a_study_file(annotation: Any) -> None:
    spec = spec_of(annotation)
    expected = Range(low=1, high=8, integer=True)
    assert dict(tunables(spec)) == {"size": expected}
    for wanted in ("default", Range(low=1, high=8)):
        assert domains_of("loss", spec, {"size": wanted}, "x") == {"loss.size": expected}


@pytest.mark.parametrize("annotation", [
    float, float | None, int | float, Annotated[float, Field(ge=0)], Annotated[int | float, Field(ge=0)] | None,
])
def test_a_setting_that_takes_fractions_is_searched_over_all_numbers(annotation: Any) -> None:
    spec = spec_of(annotation)
    assert dict(tunables(spec)) == {"size": Range(low=1, high=8)}
    asked = Range(low=1, high=8, integer=True)  # by choice
    assert domains_of("loss", spec, {"size": asked}, "x") == {"loss.size": asked}


def study_of(losses: list[Any], **search: Any) -> StudySpec:
    return tiny_study(*losses, search={"configurations": 40} | search)


def drawn(study: StudySpec, cell: Cell, count: int) -> list[dict[str, Any]]:
    """So many configurations of a search whose spec refuses none; each ended before the next."""
    def refuses(_: str, configuration: Any) -> str | None:
        assert refusal(study, cell, configuration) is None
        return None

    search, found = SearchHere([cell], study.search, refuses=refuses), []
    for number in range(count):
        drawn = search.ask(cell.name)
        assert drawn is not None
        search.end(cell.name, drawn.number, "finished", [(1.0, 30.0 + number % 7)])
        found.append(dict(drawn.configuration))
    return found


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("scale", ["", ", log=True"])
def test_every_sampler_samples_whole_numbers_for_a_plugin_and_for_an_optional_setting(
    tmp_path: Path, sampler: str, scale: str
) -> None:
    line = RAMP.replace("high=400", f"high=400{scale}")
    load_plugin(str(write_loss(tmp_path / "half_hinge", spec=SPEC + line)), base=tmp_path)
    training = {"validate_every_steps": {"low": 5, "high": 60}}
    entry = {"name": "half_hinge", "search": {"ramp_steps": "default"}}
    study = study_of([entry], sampler=sampler, training=training)
    (cell,) = resolve_cells(study, where="x")
    assert cell.domains["loss.ramp_steps"] == Range(low=50, high=400, log=bool(scale), integer=True)
    found = drawn(study, cell, 24)
    values = [each["loss.ramp_steps"] for each in found]
    assert all(type(value) is int and 50 <= value <= 400 for value in values)
    assert values[0] == 200
    assert len(set(values)) > 2
    steps = [each["training.validate_every_steps"] for each in found]
    assert all(type(value) is int and 5 <= value <= 60 for value in steps)


def test_a_search_that_an_earlier_version_began_over_fractions_is_refused_in_a_line_that_helps() -> None:
    study = study_of([{"name": "lmh", "search": {"memory_size": {"low": 0, "high": 64}}}])
    (cell,) = resolve_cells(study, where="x")
    earlier = replace(cell, domains={"loss.memory_size": Range(low=0, high=64)})
    writer = StudyWriter()
    SearchHere([earlier], study.search, writer).ask(cell.name)
    with refused("VSE-E002", cell="vsepp.lmh", setting="loss.memory_size"):
        SearchHere([cell], study.search, writer)


@pytest.mark.parametrize("range_", ["low=0.5, high=400", "low=1, high=1e30"])
def test_an_own_range_of_whole_numbers_whose_ends_are_none_is_refused(
    tmp_path: Path, range_: str
) -> None:
    folder = write_loss(tmp_path / "half_hinge", spec=SPEC + RAMP.replace("low=50, high=400", range_), loss=LOSS)
    with refused("VSE-C013") as caught:
        load_plugin(str(folder), base=tmp_path)
    assert str(caught.value).startswith(f"plugins: {folder / 'spec.py'}: ramp_steps: ")


def test_what_a_range_of_whole_numbers_contains_and_what_is_nearest_in_it() -> None:
    domain = Range(low=1, high=8, integer=True)
    assert [contains(domain, value) for value in (1, 8, 2.0, 2.5, 0, 9, True, "2", None)] == [
        True, True, True, False, False, False, False, False, False,
    ]
    assert contains(Range(low=1, high=8), 2.5)
    assert contains(Choices(choices=["a", 2]), "a")
    assert not contains(Choices(choices=["a", 2]), "b")
    assert [clipped(value, domain) for value in (None, 0, 2.2, 2.8, 99)] == [1, 1, 2, 3, 8]
    assert all(type(value) is int for value in values_to_check(domain))
