"""Searched ranges and their source; settings of a winner at an end of their range, and the edit of the study file that
widens it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from vsetune.board.rows import AT_RANGE_END, Leaderboard, RangeEnd, Row
from vsetune.config.component_specs import LOSSES, NETWORKS
from vsetune.config.spec.base import Choices, Domain, Range, Spec, paper_of, tunables
from vsetune.config.study.cells import Cell, Configuration, cell_of, refusal
from vsetune.config.study.domains import Value
from vsetune.config.study.loss_settings import terms_in
from vsetune.config.study.study_entries import LossEntry, NetworkEntry, Settings
from vsetune.config.study.study_spec import StudySpec
from vsetune.config.study.training import TrainingSpec
from vsetune.errors import ConfigError, StorageError
from vsetune.records.events import PLUGIN_TAG, StudyRecord
from vsetune.study.recorded_studies import study_of

NEAR = 0.05
"""Share of a range, on its search scale, that counts as its end. Of n values spread over a range, the outermost lies
1/(n + 1) of the range from the end. With up to 19 trials, a winner this near the end is the outermost value tried."""
_WIDER = (0.5, 0.25, 0.1, NEAR)
"""Shares of the range by which it may be widened. The largest one that the setting accepts is used."""
_SLACK = 1e-9
_FEWEST = 3
"""Fewest values, of a list or of whole numbers, that include one which is not an end."""

End = Literal["low", "high"]


def board_with_ends(board: Leaderboard, studies: Sequence[StudyRecord]) -> Leaderboard:
    """The board with the ranges of every tuned row, and a mark and a note where a winner has a setting at an end.

    studies: records of the studies on the board. Some rows get no mark: rows with a single configuration, rows of
    studies of another version, and rows of studies with plugins, whose code a board does not run.
    """
    known = {record.name: record for record in studies}
    read: dict[str, StudySpec | None] = {}
    rows = []
    for row in board.rows:
        if row.study not in read:
            read[row.study] = _readable(known.get(row.study))
        spec = read[row.study]
        rows.append(row if spec is None or not row.is_tuned else _marked(row, spec))
    return replace(board, rows=tuple(rows))


def range_ends(study: StudySpec, cell: Cell, configuration: Configuration) -> list[RangeEnd]:
    """Settings of a cell's winner at an end of their range, in the order of settings. configuration: of the winner.

    An end beyond which the setting itself accepts no value (0 of a probability) does not count: an end is left out if
    the study would refuse the value that lies NEAR beyond it.
    """
    found = []
    configuration = {name: value for name, value in configuration.items() if name in cell.domains}  # it may be imported
    for setting, domain in cell.domains.items():
        value = configuration.get(setting)
        end = None if value is None else near_end(domain, value)
        if end is None:
            continue

        def accepts(value: Value, of: str = setting) -> bool:
            return refusal(study, cell, {**configuration, of: value}) is None

        wider = next(wider_domains(domain, end, accepts), None)
        if wider is not None:
            place, line = _edit(study, cell, setting, wider)
            found.append(RangeEnd(setting, _text(value), end, _span(domain), place, line))
    return found


def searched_ranges(cell: Cell) -> Iterator[str]:
    """`loss.margin 0.02 to 0.8, log (default 0.05 to 0.4; LSEH Table 2: 0.185)` for every searched
    setting of a cell."""
    specs: dict[str, type[Spec]] = {"training": TrainingSpec, "network": NETWORKS[cell.network["name"]], **{
        f"loss.{label}" if label else "loss": LOSSES[plain["name"]] for label, plain in terms_in(cell.loss).items()
    }}
    for setting, domain in cell.domains.items():
        part, name = setting.rsplit(".", 1)
        spec = specs[part]
        default, paper = dict(tunables(spec)).get(name), paper_of(spec.model_fields.get(name))
        source = "" if default is None else "the default range" if domain == default else f"default {_span(default)}"
        known = "; ".join(filter(None, [source, paper]))
        yield f"{setting} {_span(domain)}" + (f" ({known})" if known else "")


def _marked(row: Row, study: StudySpec) -> Row:
    cell = cell_of(study, row.cell)
    if cell is None:
        return row
    row = replace(row, searched=tuple(searched_ranges(cell)))
    picks = tuple(
        replace(pick, range_ends=tuple(range_ends(study, cell, pick.configuration))) for pick in row.repeats
    )
    if not any(pick.range_ends for pick in picks):
        return row
    return replace(row, repeats=picks, flags=(*row.flags, AT_RANGE_END))


def _readable(record: StudyRecord | None) -> StudySpec | None:
    if record is None or any(tag.startswith(PLUGIN_TAG) for tag in record.tags):
        return None
    try:
        return study_of(record)
    except (ConfigError, StorageError):
        return None


def _edit(study: StudySpec, cell: Cell, setting: str, wider: Domain) -> tuple[str, str]:
    """(place in the study file of a setting's search domain, the line that sets `wider` there). If the entry has
    `search: default`, the line names its other settings too; otherwise they would no longer be searched."""
    part, name = setting.split(".", 1)
    if part == "training":
        return "search.training", f"{name}: {_flow(wider)}"
    entry, place = _entry(study, cell, part)
    prefix = f"{part}."
    if isinstance(entry, LossEntry) and entry.loss:
        label, name = name.rsplit(".", 1)
        entry = next(each for each in entry.loss if each.part_name == label)
        place, prefix = f"{place}, its part {label}", f"{part}.{label}."
    search = entry.search
    others: Mapping[str, Any] = search if isinstance(search, dict) else {
        other.removeprefix(prefix): "default" for other in cell.domains if other.startswith(prefix)
    }
    words = ", ".join(f"{other}: {_flow(wider if other == name else of)}" for other, of in others.items())
    return place, f"search: {{{words}}}"


def _entry(study: StudySpec, cell: Cell, part: str) -> tuple[Settings, str]:
    """The entry of the file from which a part of the cell comes, and a text that names its place."""
    listed: Sequence[NetworkEntry | LossEntry] = study.networks if part == "network" else study.losses
    wanted = cell.network_name if part == "network" else cell.loss_name
    place = f"{'networks' if part == 'network' else 'losses'}, entry {wanted}"
    return next(each for each in listed if each.cell_name == wanted), place


def _flow(domain: Domain | str) -> str:
    """A domain as YAML in flow style: `{low: 0.01, high: 1, log: true}`."""
    if isinstance(domain, str):
        return domain
    if isinstance(domain, Choices):
        return f"{{choices: [{', '.join(map(_text, domain.choices))}]}}"
    scale = "".join(f", {name}: true" for name in ("log", "integer") if getattr(domain, name))
    return f"{{low: {_text(domain.low)}, high: {_text(domain.high)}{scale}}}"


def _span(domain: Domain) -> str:
    if isinstance(domain, Choices):
        return ", ".join(map(_text, domain.choices))
    return f"{_text(domain.low)} to {_text(domain.high)}{', log' if domain.log else ''}"


def _text(value: Any) -> str:
    """A value as text, to six digits. A number with an exponent gets a decimal point, which YAML needs to read it as a
    number."""
    if not isinstance(value, float):
        return str(value)
    text = f"{value:g}"
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa}.0e{exponent}" if e and "." not in mantissa else text


def near_end(domain: Domain, value: Any) -> End | None:
    """The end of the domain that a value is at. None if it is at no end, and for domains without order (words,
    booleans) or without values between their ends."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if isinstance(domain, Choices):
        numbers = _numbers(domain)
        if len(numbers) < _FEWEST or value not in (numbers[0], numbers[-1]):
            return None
        return "low" if value == numbers[0] else "high"
    if domain.low == domain.high or (domain.integer and domain.high - domain.low < _FEWEST - 1):
        return None
    if domain.log and value <= 0:
        return None
    low, high = _turned(domain, domain.low), _turned(domain, domain.high)
    place = (_turned(domain, value) - low) / (high - low)
    return "low" if place <= NEAR else "high" if place >= 1 - NEAR else None


def wider_domains(domain: Domain, end: End, accepts: Callable[[Value], bool]) -> Iterator[Domain]:
    """The widened domains whose new end the setting accepts, the widest first; none if it does not accept even the
    nearest new end."""
    wider: list[Domain] = (
        [_further(domain, end)] if isinstance(domain, Choices)
        else [each for each in (_wider(domain, end, by) for by in _WIDER) if each.low > 0 or not each.log]
    )
    ends = [_outermost(each, end) for each in wider]
    if ends and accepts(ends[-1]):
        yield from (each for each, value in zip(wider, ends, strict=True) if accepts(value))


def _wider(domain: Range, end: End, by: float) -> Range:
    low, high = _turned(domain, domain.low), _turned(domain, domain.high)
    reach = by * (high - low)
    beyond = low - reach if end == "low" else high + reach
    value = _outwards(math.exp(beyond) if domain.log else beyond, end, of=domain)
    if domain.integer:
        value = min(math.floor(value), domain.low - 1) if end == "low" else max(math.ceil(value), domain.high + 1)
    return domain.model_copy(update={end: float(value)})


def _outwards(value: float, end: End, *, of: Range) -> float:
    """The value rounded outwards to one digit of its distance from the end; on a log scale, to one digit of the smaller
    of that distance and the value."""
    way = abs(value - (of.low if end == "low" else of.high))
    digit = 10.0 ** math.floor(math.log10(min(way, value) if of.log else way))
    whole = math.floor(value / digit + _SLACK) if end == "low" else math.ceil(value / digit - _SLACK)
    return _plain(whole * digit)


def _further(domain: Choices, end: End) -> Choices:
    """The choices with one more beyond an end, as far from the outermost as that is from its neighbour. The distance is
    a factor if the choices are positive and unevenly spaced."""
    numbers = _numbers(domain)
    third, second, first = numbers[2::-1] if end == "low" else numbers[-3:]
    steps = abs(second - third), abs(first - second)
    is_scaled = numbers[0] > 0 and not math.isclose(*steps)
    value: int | float = _plain(first * first / second if is_scaled else 2 * first - second)
    if all(isinstance(number, int) for number in numbers):
        value = round(value)
    listed = [value, *domain.choices] if end == "low" else [*domain.choices, value]
    return Choices(choices=listed)


def _outermost(domain: Domain, end: End) -> int | float:
    if isinstance(domain, Choices):
        return _numbers(domain)[0 if end == "low" else -1]
    value = domain.low if end == "low" else domain.high
    return int(value) if domain.integer else value


def _numbers(domain: Choices) -> list[int | float]:
    """The choices in ascending order; none if one of them is not a number."""
    if any(isinstance(choice, bool | str) for choice in domain.choices):
        return []
    return sorted({choice for choice in domain.choices if not isinstance(choice, bool | str)})


def _turned(domain: Range, value: float) -> float:
    return math.log(value) if domain.log else float(value)


def _plain(value: float) -> float:
    """The value rounded to six digits, to remove rounding noise."""
    return float(f"{value:.6g}")
