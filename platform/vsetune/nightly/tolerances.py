"""What a night may differ by before anybody is told, in plain words."""

from __future__ import annotations

import math
import re
from typing import Any

from pydantic import Field, field_validator

from vsetune.config.spec.base import Spec, known_name
from vsetune.nightly.measures import BY_NAME, Measure

_NIGHTS_A_MONTH = 30
_FEWEST_NIGHTS, _MOST_NIGHTS = 2, 3650
_ONE_IN, _A_MONTH = re.compile(r"one in (\d{1,6}) nights"), re.compile(r"(\d{1,6}) a month")
_PER_CENT = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) ?%")


class Tolerances(Spec):
    """How often a quiet sweep may raise an alarm, and which changes are too small to matter."""

    false_alarms: str = Field(
        "one in 30 nights", max_length=60,
        description="promise for the whole report: `one in N nights`, or `N a month` (of 30 nights)",
    )
    baseline_nights: int = Field(7, ge=3, le=365, description="nights of a line before verdicts are given")
    smallest_change: dict[str, float | str] = Field(
        default_factory=dict, max_length=100,
        description="smallest change that matters, by measure: a number in its unit, or `5 %` of times, rates, memory",
    )

    @field_validator("false_alarms")
    @classmethod
    def _is_a_rate(cls, text: str) -> str:
        nights_per_false_alarm(text)
        return text

    @field_validator("smallest_change", mode="before")
    @classmethod
    def _is_a_change(cls, given: Any) -> Any:
        if isinstance(given, dict):
            for name, value in given.items():
                change_of(BY_NAME[known_name(str(name), BY_NAME, "measure")], value)
        return given

    @property
    def false_alarm_nights(self) -> float:
        """Nights per false alarm that are allowed on average, for the whole report."""
        return nights_per_false_alarm(self.false_alarms)

    def smallest_change_of(self, measure: Measure) -> float:
        """In the unit of the measure where linear, a fraction where ratio."""
        given = self.smallest_change.get(measure.name)
        return measure.smallest_change if given is None else change_of(measure, given)


def nights_per_false_alarm(text: str) -> float:
    """`one in 30 nights` is 30, `2 a month` is 15. ValueError for anything else."""
    words = " ".join(text.split()).lower()
    one_in, a_month = _ONE_IN.fullmatch(words), _A_MONTH.fullmatch(words)
    if one_in is not None:
        nights = float(one_in[1])
    elif a_month is not None and int(a_month[1]) > 0:
        nights = _NIGHTS_A_MONTH / int(a_month[1])
    else:
        raise ValueError(f"got {text!r}, need `one in N nights` or `N a month`, such as `one in 30 nights`")
    if not _FEWEST_NIGHTS <= nights <= _MOST_NIGHTS:
        raise ValueError(f"got {text!r}, need between one in {_FEWEST_NIGHTS} and one in {_MOST_NIGHTS} nights")
    return nights


def change_of(measure: Measure, given: Any) -> float:
    """A smallest change as a number: in the unit of a linear measure, a fraction of a ratio. ValueError otherwise."""
    share = _PER_CENT.fullmatch(given.strip()) if isinstance(given, str) else None
    is_share = measure.scale == "ratio" or measure.unit == "share"
    if is_share and share is not None:
        value = float(share[1]) / 100
    elif not is_share and isinstance(given, int | float) and not isinstance(given, bool):
        value = float(given)
    else:
        usual = f"{measure.smallest_change:g}"
        need = "per cent, such as 5 %" if is_share else f"a number of {measure.unit}, such as {usual}"
        raise ValueError(f"{measure.name}: got {given!r}, need {need}")
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{measure.name}: got {given!r}, need more than 0")
    return value
