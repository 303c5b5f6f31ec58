"""Searched ranges and their source; settings of a winner at an end of their range, and the edit of the study file that
widens it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vsetune.config.component_specs import LOSSES, NETWORKS
from vsetune.config.spec.base import Choices, Domain, Spec, paper_of, tunables
from vsetune.config.study.cells import Cell, Configuration, cell_of, refusal, repeat_name
from vsetune.config.study.domains import Value
from vsetune.config.study.loss_settings import terms_in
from vsetune.config.study.study_entries import LossEntry, NetworkEntry, Settings
from vsetune.config.study.study_spec import StudySpec
from vsetune.config.study.training import TrainingSpec
from vsetune.errors import ConfigError, StorageError
from vsetune.records.events import PLUGIN_TAG, StudyRecord
from vsetune.records.studies import Studies
from vsetune.report.rows import AT_RANGE_END, Leaderboard, RangeEnd, Row
from vsetune.search.widening import WIDENED, Ranges, near_end, wider_domains, with_ranges
from vsetune.study.recorded_studies import study_of


def board_with_ends(board: Leaderboard, studies: Sequence[StudyRecord], store: Studies | None = None) -> Leaderboard:
    """The board with the ranges of every tuned row, and a mark and a note where a winner has a setting at an end.

    studies: records of the studies on the board. Some rows get no mark: rows with a single configuration, rows of
    studies of another version, and rows of studies with plugins, whose code a board does not run. store: None for that
    of this home; it is read where a search may widen its ranges.
    """
    known = {record.name: record for record in studies}
    read: dict[str, tuple[StudySpec, Mapping[str, Ranges]] | None] = {}
    rows = []
    for row in board.rows:
        if row.study not in read:
            spec = _readable(known.get(row.study))
            read[row.study] = None if spec is None else (spec, widened_by_cell(spec, store))
        found = read[row.study]
        rows.append(row if found is None or not row.is_tuned else _marked(row, *found))
    return replace(board, rows=tuple(rows))


def widened_by_cell(study: StudySpec, store: Studies | None = None) -> dict[str, Ranges]:
    """The ranges that the searches of a recorded study have widened, by cell; cells without any are left out."""
    if not study.search.widen:
        return {}
    draws = (store or Studies()).draws(study.study)
    return {each.cell: each.attributes[WIDENED] for each in draws if WIDENED in each.attributes}


def range_ends(study: StudySpec, cell: Cell, configuration: Configuration) -> list[RangeEnd]:
    """Settings of a cell's winner at an end of their range, in the order of settings. configuration: of the winner.

    An end beyond which the setting itself accepts no value (0 of a probability) does not count: an end is left out if
    the study would refuse the value that lies NEAR beyond it.
    """
    found = []
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


def searched_ranges(cell: Cell, widened: Mapping[str, Ranges]) -> Iterator[str]:
    """`loss.margin 0.02 to 0.8, log (default 0.05 to 0.4; LSEH Table 2: 0.185)` for every searched
    setting of a cell. widened: by search, in words, what it has widened."""
    specs: dict[str, type[Spec]] = {"training": TrainingSpec, "network": NETWORKS[cell.network["name"]], **{
        f"loss.{label}" if label else "loss": LOSSES[plain["name"]] for label, plain in terms_in(cell.loss).items()
    }}
    for setting, domain in cell.domains.items():
        part, name = setting.rsplit(".", 1)
        spec = specs[part]
        default, paper = dict(tunables(spec)).get(name), paper_of(spec.model_fields.get(name))
        source = "" if default is None else "the default range" if domain == default else f"default {_span(default)}"
        known = "; ".join(filter(None, [source, paper]))
        grown: dict[str, list[str]] = {}
        for search, ranges in widened.items():
            if setting in ranges:
                grown.setdefault(_span(with_ranges(cell, ranges).domains[setting]), []).append(search)
        wider = ", ".join(f"to {span} by {' and '.join(searches)}" for span, searches in grown.items())
        yield f"{setting} {_span(domain)}" + (f" ({known})" if known else "") + (f", widened {wider}" if wider else "")


def _marked(row: Row, study: StudySpec, widened: Mapping[str, Ranges]) -> Row:
    cell = cell_of(study, row.cell)
    if cell is None:
        return row
    first, is_one = f"{cell.network_name}.{cell.loss_name}", len(row.repeats) == 1
    grown = {pick.repeat: widened.get(repeat_name(first, pick.repeat), {}) for pick in row.repeats}
    words = {"the search" if is_one else f"search {repeat}": ranges for repeat, ranges in grown.items()}
    row = replace(row, searched=tuple(searched_ranges(cell, words)))
    picks = tuple(
        replace(pick, range_ends=tuple(range_ends(study, with_ranges(cell, grown[pick.repeat]), pick.configuration)))
        for pick in row.repeats
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
