"""The first points of a search, before anything is sampled: the papers' defaults, then points printed in papers."""

from __future__ import annotations

from collections.abc import Sequence

from vsetune.config.spec.base import Choices, Domain
from vsetune.config.study.cells import Cell
from vsetune.config.study.domains import PublishedPoint, Value, clipped, tables
from vsetune.config.study.study_spec import SearchSpec

FirstPoint = tuple[dict[str, Value], str]
"""A configuration, and its source in one line."""


def first_points(spec: SearchSpec, cell: Cell) -> list[FirstPoint]:
    """Points in the order in which they are tried, equal ones once."""
    begins = [(cell.defaults(), "the papers' defaults")] if spec.include_defaults else []
    found = {_key(configuration): (configuration, why) for configuration, why in begins}
    for name in spec.points:
        for configuration, why in published_in(name, cell):
            found.setdefault(_key(configuration), (configuration, f"points: {why}"))
    return list(found.values())


def published_in(table: str, cell: Cell) -> list[FirstPoint]:
    """The points of every row of a table that is about this cell. Settings that a row lacks stay at their defaults; a
    value outside its range is moved to the nearer end, which the source line reports."""
    found = []
    for point in tables()[table]:
        about = {name: value for name, value in point.settings.items() if name in cell.domains}
        if not about or not _is_about(point, cell):
            continue
        inside = {name: _in_domain(value, cell.domains[name]) for name, value in about.items()}
        moved = [name for name, value in about.items() if inside[name] != value]
        told = f"{point.source} ({', '.join(moved)} moved into the range)" if moved else point.source
        found.append((cell.applying({**cell.all_defaults(), **inside}), told))
    return found


def _is_about(point: PublishedPoint, cell: Cell) -> bool:
    return point.network == cell.network["name"] and point.loss in ("", cell.loss["name"])


def _in_domain(value: float, domain: Domain) -> Value:
    """For choices, the nearest number in the list, or the first choice if it has no numbers; else clipped to the
    range."""
    if not isinstance(domain, Choices):
        return clipped(value, domain)
    numbers = [each for each in domain.choices if isinstance(each, int | float) and not isinstance(each, bool)]
    return min(numbers, key=lambda each: abs(each - value)) if numbers else domain.choices[0]


def _key(configuration: dict[str, Value]) -> Sequence[tuple[str, Value]]:
    return tuple(sorted(configuration.items()))
