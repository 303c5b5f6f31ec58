"""Comparison of tonight's first losses, and the recalls after them, with the oldest that count: equal bit for bit, or
changed.

These numbers need no band: the seed is fixed, there is one thread, and a line has one machine with the same packages.
They are not judged where the nights of one commit show that they do not repeat.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vsetune.nightly.history import Accepted
from vsetune.nightly.lines import counts_from
from vsetune.nightly.measures import FIRST_LOSSES
from vsetune.nightly.night import Night
from vsetune.nightly.report import ReportRow, Verdict
from vsetune.nightly.suspects import CommitRange, Suspects, commits_in

_NOBODY = Suspects(())
_MOST_KINDS = 3
"""Number of different results under one commit that shows that they do not repeat."""


def judged_first_losses(
    line: Sequence[Night], tonight: Night, cell: str, accepted: Sequence[Accepted]
) -> ReportRow:
    """The row of the first losses. line: earlier nights under the conditions of tonight, oldest first.

    Tonight is compared with the oldest losses that count: a change is reported until it is accepted, or until the old
    losses are back. change: the largest relative difference.
    """
    begin = counts_from(accepted, cell, FIRST_LOSSES, tonight.date)
    counted = [night for night in line if night.date >= begin and _losses(night, cell)]
    now = _losses(tonight, cell)
    dates, values = [night.date for night in (*counted, tonight)], [None] * (len(counted) + 1)
    if not now:
        return _row(cell, "missing", dates, values, "first losses: not taken tonight")
    if not counted:
        return _row(cell, "baseline", dates, values, f"first losses: {len(now)} steps, nothing to compare with yet")
    reference = _Reference.of(counted, cell)
    if reference.is_met_by(tonight, cell):
        compared = len(_recalls(tonight, cell)) if reference.recalls else 0
        and_recalls = f" and {compared} recalls after them" if compared else ""
        return _row(cell, "quiet", dates, values, f"first losses: {len(now)} steps{and_recalls} equal to the last bit")
    unrepeated = _does_not_repeat([*counted, tonight], cell)
    if unrepeated is not None:
        return _row(cell, "missing", dates, values, f"first losses: {unrepeated}")
    since = _since(counted, tonight, cell, reference)
    before = [night for night in counted if night.date < since][-1]
    first = next(night for night in (*counted, tonight) if night.date == since)
    suspects = commits_in(CommitRange(before.revision, first.revision))
    told, largest = reference.difference(tonight, cell)
    told += "" if since == tonight.date else f", since {since}"
    return _row(cell, "changed", dates, values, told, change=largest, since=since, suspects=suspects)


@dataclass(frozen=True)
class _Reference:
    """The numbers to compare with. losses: of the oldest night that counts. recalls: of the oldest night with these
    losses that has recalls."""

    losses: tuple[float, ...]
    recalls: Mapping[str, float]

    @classmethod
    def of(cls, counted: Sequence[Night], cell: str) -> _Reference:
        losses = _losses(counted[0], cell)
        taken = (_recalls(night, cell) for night in counted if _losses(night, cell) == losses)
        return cls(losses, next(filter(None, taken), {}))

    def is_met_by(self, night: Night, cell: str) -> bool:
        recalls = _recalls(night, cell)
        is_same_validation = not recalls or not self.recalls or dict(recalls) == dict(self.recalls)
        return _losses(night, cell) == self.losses and is_same_validation

    def difference(self, night: Night, cell: str) -> tuple[str, float]:
        """(description, largest relative difference) of a night that differs from the reference."""
        losses = _losses(night, cell)
        if losses != self.losses:
            step, largest = _difference(self.losses, losses)
            return f"first losses: differ from step {step} on, by up to {largest:.2g} of their size", largest
        was, is_ = self.recalls, _recalls(night, cell)
        names = [name for name in {**was, **is_} if was.get(name) != is_.get(name)]
        name = "m_recall" if "m_recall" in names else names[0]
        largest = max(_relative(was.get(each, 0.0), is_.get(each, 0.0)) for each in names)
        parts = f"{name} is {is_.get(name, math.nan):.6g} instead of {was.get(name, math.nan):.6g}"
        return f"first losses: equal, but the recalls after them differ: {parts}; validation has changed", largest


def _losses(night: Night, cell: str) -> tuple[float, ...]:
    measured = night.cells.get(cell)
    return () if measured is None else tuple(measured.first_losses)


def _recalls(night: Night, cell: str) -> Mapping[str, float]:
    measured = night.cells.get(cell)
    return {} if measured is None else measured.first_recalls


def _does_not_repeat(nights: Sequence[Night], cell: str) -> str | None:
    """Why equality cannot be required; None where it can. Only two different results under one commit may be two states
    of the machine, and the newer one is reported as a change."""
    found: dict[str, set[tuple[float, ...]]] = {}
    for night in nights:
        if night.revision.isalnum() and night.revision != "unknown":
            found.setdefault(night.revision, set()).add((*_losses(night, cell), *_recalls(night, cell).values()))
    for revision, kinds in found.items():
        if len(kinds) >= _MOST_KINDS:
            return (f"{len(kinds)} different ones under commit {revision[:12]}, so they do not repeat here and are not "
                    "judged")
    return None


def _since(counted: Sequence[Night], tonight: Night, cell: str, reference: _Reference) -> str:
    """The first date of the unbroken run of differing nights that ends tonight."""
    since = tonight.date
    for night in reversed(counted):
        if reference.is_met_by(night, cell):
            break
        since = night.date
    return since


def _difference(reference: Sequence[float], now: Sequence[float]) -> tuple[int, float]:
    """(first step that differs, counted from 1; largest relative difference)."""
    steps = [n for n, (was, is_) in enumerate(zip(reference, now, strict=False), start=1) if was != is_]
    step = steps[0] if steps else min(len(reference), len(now)) + 1
    largest = max((_relative(was, is_) for was, is_ in zip(reference, now, strict=False)), default=0.0)
    return step, largest


def _relative(was: float, is_: float) -> float:
    if was == is_:
        return 0.0
    if not (math.isfinite(was) and math.isfinite(is_)):
        return math.inf
    return abs(is_ - was) / max(abs(was), abs(is_))


def _row(
    cell: str, verdict: Verdict, dates: list[str], values: list[None], text: str, *, change: float | None = None,
    since: str | None = None, suspects: Suspects = _NOBODY,
) -> ReportRow:
    return ReportRow(
        cell=cell, measure=None, verdict=verdict, dates=dates, values=values, tonight=None, change=change, since=since,
        found_by="bits" if verdict == "changed" else "", suspects=suspects.lines,
        suspects_note=suspects.note, text=text,
    )
