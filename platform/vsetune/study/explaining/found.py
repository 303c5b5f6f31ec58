"""What a search has found, in a sentence for each cell: the first thing that the page and the terminal say."""

from __future__ import annotations

from vsetune.report.wording import fixed
from vsetune.study.explaining.explained import ExplainedCell, ExplainedStudy, settings_text

_MOST_NAMED = 5


def findings(explained: ExplainedStudy) -> list[str]:
    """A sentence for each cell with trials, and one for those without. The best cell of a study comes first."""
    begun = sorted((cell for cell in explained.cells if cell.trials), key=_height, reverse=True)
    lines = [f"{cell.name}: {_finding(cell)}." for cell in begun]
    waiting = [cell.name for cell in explained.cells if not cell.trials]
    if waiting:
        more = f" and {len(waiting) - _MOST_NAMED} more" if len(waiting) > _MOST_NAMED else ""
        lines.append(f"No trial yet: {', '.join(waiting[:_MOST_NAMED])}{more}.")
    return lines


def _height(cell: ExplainedCell) -> float:
    return -1.0 if cell.winner is None or cell.winner.best is None else cell.winner.best


def _finding(cell: ExplainedCell) -> str:
    """The best trial, the setting that matters most, and settings at an end of their range."""
    count, best = len(cell.trials), cell.winner
    if best is None or best.best is None:
        which = "the only trial" if count == 1 else f"none of {count} trials"
        return f"{which} has {'no' if count == 1 else 'a'} result that counts"
    place = "the only trial of its search" if count == 1 else f"trial {cell.trials.index(best) + 1} of {count}"
    picked = "best" if best.value in (None, best.best) else "its pick has"
    found = [f"{picked} M-Recall {fixed(best.best, 1)} % by {place}, with {settings_text(best)}"]
    if cell.importances.shares:
        setting = cell.settings[0]
        share = fixed(100 * cell.importances.shares[setting], 0)
        found.append(f"{setting} matters most ({share} %, of {cell.importances.trials} trials)")
    ends = [f"{end.setting} is at the {end.end} end" for end in cell.range_ends]
    if ends:
        found.append(f"{', '.join(ends)} of what was searched")
    return "; ".join(found)
