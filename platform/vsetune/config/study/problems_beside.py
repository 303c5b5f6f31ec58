"""Problems of single cells in a study file that also has other problems: both are reported at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError, model_validator

from vsetune.config.study.cells import resolve_cells
from vsetune.config.study.consistency import Place, with_stand_ins
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import ConfigError

_DECIDE_ON_CELLS = {"training", "overrides", "cells", "plugins"}
"""Keys that decide on cells: without them a valid cell may look wrong."""


class _AnyStudy(StudySpec):
    """A study whose parts may contradict one another, so that its cells can be checked despite contradictions."""

    @model_validator(mode="after")
    def _consistent(self) -> _AnyStudy:
        return self


def problems_of_cells(content: Mapping[str, Any], wrong: Sequence[Place], *, where: str) -> list[str]:
    """The problems of `resolve_cells` for the cells whose network and loss are valid in a file that is not.

    wrong: places of values that are wrong by themselves. Empty if these places affect how cells train.
    """
    places = [place for place in wrong if place]
    keys = {str(place[0]) for place in places}
    if keys & _DECIDE_ON_CELLS or keys - StudySpec.model_fields.keys():  # an unknown key may be one of them, misspelled
        return []
    kept = with_stand_ins(content, places)
    if any(key in content and key not in kept for key in _DECIDE_ON_CELLS):
        return []
    try:
        study = _AnyStudy.model_validate(kept)
    except ValidationError:
        return []
    return _problems(_without_stand_ins(study, places), where)


def _without_stand_ins(study: StudySpec, wrong: Sequence[Place]) -> StudySpec:
    """The study reduced to the cells of which no part was replaced."""
    sound = {}
    networks = [entry.cell_name for entry in study.networks]
    losses = [entry.cell_name for entry in study.losses]
    for kind, names in (("networks", networks), ("losses", losses)):
        places = [place for place in wrong if place[0] == kind]
        replaced = {place[1] for place in places if len(place) > 1}
        are_known = len(set(names)) == len(names) and all(len(place) > 1 for place in places)
        sound[kind] = [name for number, name in enumerate(names) if number not in replaced] if are_known else []
    cells = [f"{network}.{loss}" for network in sound["networks"] for loss in sound["losses"]]
    listed = cells if study.cells is None else [name for name in cells if name in study.cells]
    return study.model_copy(update={"cells": listed})


def _problems(study: StudySpec, where: str) -> list[str]:
    try:
        resolve_cells(study, where=where)
    except ConfigError as error:
        return error.problems
    return []
