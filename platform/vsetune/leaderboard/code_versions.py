"""Versions of user components that the cells of a board ran with, from their attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vsetune.leaderboard.rows import Row
from vsetune.leaderboard.selection import Trial
from vsetune.records.attempts import NO_CONFIGURATION


def code_of(trials: Sequence[Trial]) -> dict[str, str]:
    """sha256 by key (`loss.my_loss`) of the user code that the trials of one cell have run.

    A trial that records that no configuration was found has run no code.
    """
    found: dict[str, str] = {}
    for trial in trials:
        for attempt in trial:
            plugins = attempt.start.resolved.get("plugins")
            if isinstance(plugins, Mapping) and not (attempt.error or "").startswith(NO_CONFIGURATION):
                found |= {str(key): str(sha256) for key, sha256 in plugins.items()}
    return found


def code_words(key: str, sha256: str) -> str:
    """`loss my_loss 1a2b3c4d5e6f`."""
    kind, _, name = key.partition(".")
    return f"{kind} {name} {sha256[:12]}"


def other_code(row: Mapping[str, str], reference: Mapping[str, str]) -> str | None:
    """Description of the first component of which two cells ran different versions; None without one."""
    return next((
        f"{code_words(key, row[key])} against {reference[key][:12]}: two versions of its code"
        for key in sorted(row.keys() & reference.keys()) if row[key] != reference[key]
    ), None)


def code_notes(rows: Sequence[Row]) -> list[str]:
    """One sentence for every user component: the version that each cell ran with."""
    cells: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        for key, sha256 in row.code.items():
            cells.setdefault(key, {}).setdefault(sha256, []).append(f"{row.network} {row.loss}")
    lines = []
    for key, versions in sorted(cells.items()):
        words = "; ".join(f"{code_words(key, sha256)} in {', '.join(of)}" for sha256, of in versions.items())
        several = f"{len(versions)} versions of its code, which do not compare: " if len(versions) > 1 else ""
        lines.append(f"Own code: {several}{words}.")
    return lines
