"""Does a disturbed sweep tell what the undisturbed one tells? Every difference is a finding, in one line.

Left out, because it may differ: seconds, what was lost and done again, how often a trial was started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from chaos.recorded import Recorded, RecordedAttempt

Kind = Literal["lost", "twice", "failed", "open", "different"]
ENDED = ("finished", "pruned")
_MAY_DIFFER = ("second", "attempts", "counts", "cost", "notes")
_SHOWN = 3


@dataclass(frozen=True)
class Finding:
    """kind: `lost` and `twice` of trials and points, `failed` that need not have, `open` at the end, `different`."""

    kind: Kind
    text: str


def doubts(undisturbed: Recorded, *, fewest: int) -> list[str]:
    """Why a sweep is nothing to compare with: an empty record equals every other empty one. fewest: trials of it."""
    found = undisturbed.last()
    lines = [f"{len(found)} trials, need {fewest}"] if len(found) < fewest else []
    for name, attempt in found.items():
        if attempt.status not in ENDED:
            lines.append(f"{name}: is {attempt.status}")
        elif not any(key == "m_recall" for key, _ in attempt.metrics) or not attempt.params:
            lines.append(f"{name}: has no curve or no parameters")
    return lines if undisturbed.board.get("rows") else [*lines, "no leaderboard"]


def compare(undisturbed: Recorded, disturbed: Recorded) -> list[Finding]:
    """Every way in which the second says something else than the first."""
    expected, found = undisturbed.last(), disturbed.last()
    findings = [Finding("lost", f"{name}: is missing") for name in expected if name not in found]
    findings += [Finding("different", f"{name}: was never asked for") for name in found if name not in expected]
    findings += _counted_twice(disturbed)
    for name in expected:
        if name in found:
            findings += _trial(expected[name], found[name])
    return findings + _board(undisturbed.board, disturbed.board)


def _counted_twice(recorded: Recorded) -> list[Finding]:
    """Attempts that are there twice, trials that ended twice, points with two values."""
    findings = []
    begun = Counter((attempt.trial, attempt.number) for attempt in recorded.attempts)
    findings += [
        Finding("twice", f"{trial}: attempt {number} began {count} times") for (trial, number), count in begun.items()
        if count > 1
    ]
    ends = Counter(attempt.trial for attempt in recorded.attempts if attempt.status in ENDED)
    findings += [Finding("twice", f"{trial}: ended {count} times") for trial, count in ends.items() if count > 1]
    findings += [
        Finding("twice", f"{attempt.trial}: attempt {attempt.number} has more than one {_some(attempt.repeated)}")
        for attempt in recorded.attempts if attempt.repeated
    ]
    return findings


def _trial(expected: RecordedAttempt, found: RecordedAttempt) -> list[Finding]:
    name = found.trial
    if found.status == "failed" and expected.status != "failed":
        return [Finding("failed", f"{name}: failed ({found.error}), undisturbed it {expected.status}")]
    if found.status not in (*ENDED, "failed"):
        return [Finding("open", f"{name}: is {found.status} at the end")]
    findings = []
    if found.status != expected.status:
        findings.append(Finding("different", f"{name}: {found.status}, undisturbed it {expected.status}"))
    findings += _differing(name, "parameter", expected.params, found.params)
    return findings + _differing(name, "metric", expected.metrics, found.metrics)


def _differing(name: str, what: str, expected: Mapping[Any, Any], found: Mapping[Any, Any]) -> list[Finding]:
    """Bit for bit; of repeated values the first counts here. Not-a-number equals itself."""
    missing = sorted(str(key) for key in expected.keys() - found.keys())
    further = sorted(str(key) for key in found.keys() - expected.keys())
    other = sorted(str(key) for key in expected.keys() & found.keys() if not _same(expected[key], found[key]))
    findings = [Finding("lost", f"{name}: without {what} {_some(missing)}")] if missing else []
    if further:
        findings.append(Finding("different", f"{name}: has further {what} {_some(further)}"))
    if other:
        findings.append(Finding("different", f"{name}: another value of {what} {_some(other)}"))
    return findings


def _same(expected: Any, found: Any) -> bool:
    if isinstance(expected, tuple):
        return repr(expected[0]) == repr(found[0])
    return bool(expected == found)


def _board(expected: Any, found: Any) -> list[Finding]:
    return [Finding("different", f"board: {line}") for line in _paths(expected, found, "")]


def _paths(expected: Any, found: Any, path: str) -> list[str]:
    """Where two boards part, without what may differ."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        keys = [key for key in {**expected, **found} if not any(word in key for word in _MAY_DIFFER)]
        return [
            line for key in keys for line in _paths(expected.get(key), found.get(key), f"{path}.{key}".lstrip("."))
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [line for at, (one, other) in pairs for line in _paths(one, other, f"{path}[{at}]")]
    return [] if expected == found else [f"{path} is {_short(found)}, undisturbed {_short(expected)}"]


def _some(names: Any) -> str:
    names = list(names)
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "..."
