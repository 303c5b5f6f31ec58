"""The leaderboard for other programs: CSV, LaTeX, JSON. CSV and JSON keep full precision."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from vsetune.leaderboard import wording
from vsetune.leaderboard.rows import Leaderboard, Row
from vsetune.tracking.records import AttemptStatus

_LATEX_COLUMNS = (
    "Data", "Network", "Loss", "M-Recall", "Epochs to best", "Epochs to baseline's best", "Difference", "s / epoch",
    "Seeds",
)
_STATUSES: tuple[AttemptStatus, ...] = ("finished", "pruned", "failed", "killed", "running")
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "±": r"$\pm$", "−": "$-$",
    "–": "--", "∞": r"$\infty$",
}


def to_csv(leaderboard: Leaderboard) -> str:
    """One line per cell. Empty fields for numbers that do not exist; times in seconds, recalls in per cent."""
    return _csv([_flat(leaderboard, row) for row in leaderboard.rows])


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
    plain["headline"] = wording.headline(leaderboard)
    plain["notes"] = wording.notes(leaderboard)
    return json.dumps(_finite(plain), indent=2, ensure_ascii=False, allow_nan=False)


def to_latex(leaderboard: Leaderboard) -> str:
    """A `table` for the booktabs package, rounded as on the screen, the notes below it."""
    lines = [
        r"% needs \usepackage{booktabs}", r"\begin{table}", r"\centering",
        rf"\caption{{Losses compared with {_tex(leaderboard.baseline)} in the study {_tex(leaderboard.study)}. "
        rf"{_tex(wording.protocol_line(leaderboard))}}}",
        r"\begin{tabular}{lllrrrrrr}", r"\toprule", " & ".join(map(_tex, _LATEX_COLUMNS)) + r" \\",
    ]
    letters = wording.flag_marks(leaderboard)
    for _, _, rows in leaderboard.groups():
        lines.append(r"\midrule")
        lines += [" & ".join(map(_tex, _words(row, wording.marks(row, letters)))) + r" \\" for row in rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\footnotesize {_tex(note)}" for note in wording.notes(leaderboard)]
    return "\n".join([*lines, r"\end{table}", ""])


def _words(row: Row, flags: str) -> Sequence[str]:
    return (
        row.dataset, row.network, row.loss + (f" ({flags})" if flags else ""), wording.recall(row),
        wording.fixed(row.epochs_to_best, 2), wording.epochs(row.epochs_to_target), wording.difference(row.difference),
        wording.fixed(row.seconds_per_epoch, 1), str(len(row.headline)),
    )


def _flat(leaderboard: Leaderboard, row: Row) -> dict[str, Any]:
    target, gap, chose = row.epochs_to_target, row.difference, row.searching_seed
    return {
        "study": leaderboard.study, "dataset": row.dataset, "network": row.network, "loss": row.loss,
        "is_baseline": row.is_baseline, "best_m_recall": row.best_m_recall,
        "best_m_recall_std": row.best_m_recall_std, "test_m_recall": row.test_m_recall,
        "epochs_to_best": row.epochs_to_best,
        "epochs_to_target": target.value if target else None,
        "epochs_to_target_is_censored": target.censored if target else None,
        "difference_percent": gap.percent if gap else None,
        "difference_is_lower_bound": gap.is_lower_bound if gap else None,
        "difference_low": gap.low if gap and gap.pairs > 1 else None,
        "difference_high": gap.high if gap and gap.pairs > 1 else None,
        "censored_share": gap.censored_share if gap else None, "seed_pairs": gap.pairs if gap else 0,
        "resolution_epochs": row.resolution_epochs, "seconds_per_epoch": row.seconds_per_epoch,
        "device_seconds": row.cost.device_seconds, "epochs_charged": row.cost.epochs,
        "wasted_epochs": row.cost.wasted_epochs, "trials": row.trials, "attempts": row.attempts,
        **{f"attempts_{status}": row.counts.get(status, 0) for status in _STATUSES},
        "configurations": row.configurations, "searching_seed": chose.seed if chose else None,
        "searching_seed_m_recall": chose.best_m_recall if chose else None,
        "seeds": len(row.headline), "configuration": json.dumps(row.configuration, sort_keys=True, default=str),
        "flags": " ".join(row.flags), "not_comparable": row.not_comparable,
    }


def _csv(lines: Iterable[dict[str, Any]]) -> str:
    rows = list(lines)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def _tex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _finite(plain: Any) -> Any:
    """The same data with non-finite numbers as null and mapping keys as text."""
    if isinstance(plain, dict):
        return {str(key): _finite(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [_finite(value) for value in plain]
    if isinstance(plain, float) and not math.isfinite(plain):
        return None
    return plain if isinstance(plain, str | int | float | bool | None) else str(plain)
