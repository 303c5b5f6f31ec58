"""What a search begins with before anything is drawn: the defaults of the papers, then points that papers print."""

from __future__ import annotations

from collections.abc import Sequence

from vsetune.config.spec.base import Choices, Domain
from vsetune.config.study.cells import Cell
from vsetune.config.study.domains import Value, clipped
from vsetune.config.study.published_points import PublishedPoint, tables
from vsetune.config.study.study_spec import SearchSpec

FirstPoint = tuple[dict[str, Value], str]
"""A configuration, and where it stands in one line."""


def first_points(spec: SearchSpec, cell: Cell) -> list[FirstPoint]:
    """In the order in which they are tried, equal ones once."""
    begins = [(cell.defaults(), "the papers' defaults")] if spec.include_defaults else []
    found = {_key(configuration): (configuration, why) for configuration, why in begins}
    for name in spec.points:
        for configuration, why in published_in(name, cell):
            found.setdefault(_key(configuration), (configuration, f"points: {why}"))
    return list(found.values())


def published_in(table: str, cell: Cell) -> list[FirstPoint]:
    """Of every row that is about this cell. What a row does not say stays at its default; what lies outside a range
    counts as its end, which is told."""
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
    """Of choices the nearest, as it stands in the list."""
    if not isinstance(domain, Choices):
        return clipped(value, domain)
    numbers = [each for each in domain.choices if isinstance(each, int | float) and not isinstance(each, bool)]
    return min(numbers, key=lambda each: abs(each - value)) if numbers else domain.choices[0]


def _key(configuration: dict[str, Value]) -> Sequence[tuple[str, Value]]:
    return tuple(sorted(configuration.items()))
