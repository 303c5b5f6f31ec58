"""The leaderboard for other programs: CSV, LaTeX, JSON. CSV and JSON keep full precision."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from vsetune.leaderboard import wording
from vsetune.leaderboard.column import Column, columns_of
from vsetune.leaderboard.columns import COLUMNS
from vsetune.leaderboard.findings import findings, headline
from vsetune.leaderboard.latex_words import tex as _tex
from vsetune.leaderboard.rows import Leaderboard, Row


def to_csv(leaderboard: Leaderboard, columns: Sequence[Column] = COLUMNS) -> str:
    """One line per cell, the study first. Empty fields for what does not exist; seconds and per cent, not rounded."""
    shown = columns_of("csv", columns, leaderboard.rows)
    return _csv([
        {"study": leaderboard.study, **{column.key: column.value(row) for column in shown}} for row in leaderboard.rows
    ])


def curves_to_csv(leaderboard: Leaderboard) -> str:
    """One line per validation of every seed shown; chose: it searched, and is in no mean where other seeds are."""
    return _csv([
        {
            "dataset": row.dataset, "network": row.network, "loss": row.loss, "seed": seed.seed, "trial": seed.trial,
            "chose": seed.chose, "epoch": epoch, "m_recall": recall,
        }
        for row in leaderboard.rows for seed in row.seeds for epoch, recall in seed.curve
    ])


def to_json(leaderboard: Leaderboard) -> str:
    """The whole leaderboard, curves included, with the notes and the words for `Difference`. Valid JSON: no NaN."""
    plain = asdict(leaderboard)
    for entry, row in zip(plain["rows"], leaderboard.rows, strict=True):
        entry["difference_shown"] = wording.difference(row.difference)
    plain["headline"] = headline(leaderboard)
    plain["findings"] = findings(leaderboard)
    plain["notes"] = wording.notes(leaderboard)
    return json.dumps(_finite(plain), indent=2, ensure_ascii=False, allow_nan=False)


def to_latex(leaderboard: Leaderboard, columns: Sequence[Column] = COLUMNS) -> str:
    """A `table` for the booktabs package, rounded as on the screen, the notes below it."""
    shown = columns_of("latex", columns, leaderboard.rows)
    sides = "".join("l" if column.kind == "text" else "r" for column in shown)
    lines = [
        r"% needs \usepackage{booktabs}", r"\begin{table}", r"\centering",
        rf"\caption{{Losses compared with {_tex(leaderboard.baseline)} in the study {_tex(leaderboard.study)}. "
        rf"{_tex(wording.protocol_line(leaderboard))}}}",
        rf"\begin{{tabular}}{{{sides}}}", r"\toprule", " & ".join(map(_latex_heading, shown)) + r" \\",
    ]
    letters = wording.flag_marks(leaderboard)
    for _, _, rows in leaderboard.groups():
        lines.append(r"\midrule")
        lines += [" & ".join(_latex_words(column, row, letters) for column in shown) + r" \\" for row in rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\footnotesize {_tex(note)}" for note in [*findings(leaderboard), *wording.notes(leaderboard)]]
    return "\n".join([*lines, r"\end{table}", ""])


def _latex_words(column: Column, row: Row, letters: Mapping[str, str]) -> str:
    marked = column.part == "name" and row.flags
    return _tex(column.words(row) + (f" ({wording.marks(row, letters)})" if marked else ""))


def _latex_heading(column: Column) -> str:
    """In sentence case, but for a unit at its start: s/epoch."""
    title = column.title
    return _tex(title[:1].upper() + title[1:] if title[1:2].isalpha() else title)


def _csv(lines: Iterable[dict[str, Any]]) -> str:
    rows = list(lines)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def _finite(plain: Any) -> Any:
    """The same data with non-finite numbers as null and mapping keys as text."""
    if isinstance(plain, dict):
        return {str(key): _finite(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [_finite(value) for value in plain]
    if isinstance(plain, float) and not math.isfinite(plain):
        return None
    return plain if isinstance(plain, str | int | float | bool | None) else str(plain)
