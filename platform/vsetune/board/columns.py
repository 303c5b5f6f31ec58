"""Every column of the leaderboard, declared once for terminal, page, CSV and LaTeX.

A new column is one more entry of COLUMNS, at its place in the order; no view names a column.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from vsetune.board import wording
from vsetune.board.comparing import FOR_LONG_TAILS
from vsetune.board.rows import ALPHA, Row
from vsetune.board.seed_results import CXC, CXC_AMONG, ECCV, FURTHER, RECALLS, TEST
from vsetune.config.spec.base import known_name
from vsetune.config.study.evaluation_settings import has_all_crisscrossed
from vsetune.metrics.best_of_k import BAND
from vsetune.metrics.repeated_searches import FEWEST_REPEATS
from vsetune.metrics.seed_statistics import MEAN_SEEDS, MEDIAN_SEEDS
from vsetune.records.events import AttemptStatus

Value = str | int | float | None
View = Literal["terminal", "page", "configurations", "csv", "latex"]
"""`page` is the first table of the page, `configurations` the second."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One word or number of every row.

    key: its name in CSV. meaning: a description, without a full stop. value: in full precision, None where there is
    none; the page sorts by it. It is a function of the row, or the way to it through attributes and places
    (`comparison.m_recall_bounds.0`), by default the attribute of the key. heading: the displayed heading, the key if
    empty; line breaks mark where a table may break it. shown: the displayed text; without it the value, rounded to
    `digits` where they are given. kind: text is aligned left, numbers right. unit: of the value. better: the better
    direction, if there is one. part: what it belongs to; the `name` of the row has the marks of its flags, and a
    terminal has the values shared by a `comparison` in the title of a table. width: on the
    page, never broken (`brief`) or given room (`wide`). only_if_known: the column is displayed only if some row has a
    value; CSV always has it. is_chosen: a terminal has it whatever its width.
    """

    key: str
    meaning: str
    value: str | Callable[[Row], Value] = ""
    heading: str = ""
    shown: Callable[[Row], str] | None = None
    digits: int | None = None
    kind: Literal["text", "number"] = "number"
    unit: str = ""
    better: Literal["higher", "lower"] | None = None
    part: Literal["comparison", "name", "result", "epochs", "cost"] = "result"
    width: Literal["", "brief", "wide"] = ""
    views: frozenset[View] = frozenset({"terminal", "page", "csv", "latex"})
    only_if_known: bool = False
    is_chosen: bool = False

    @property
    def broken_heading(self) -> str:
        """The heading with its line breaks."""
        return self.heading or self.key.replace("_", " ")

    @property
    def title(self) -> str:
        """The heading in one line."""
        return self.broken_heading.replace("-\n", "-").replace("\n", " ")

    @property
    def explanation(self) -> str:
        """The meaning as sentences, with the unit unless the meaning names it, and the better direction."""
        unit = f", in {self.unit}" if self.unit and self.unit not in self.meaning.lower() else ""
        direction = f" {self.better.capitalize()} is better." if self.better else ""
        return f"{self.meaning}{unit}.{direction}"

    def of(self, row: Row) -> Value:
        """The value of the row, in full precision."""
        if callable(self.value):
            return self.value(row)
        found: Any = row
        for step in (self.value or self.key).split("."):
            if found is None:
                return None
            found = found[int(step)] if step.isdigit() else getattr(found, step)
        value: Value = found
        return value

    def words(self, row: Row) -> str:
        """The displayed text of the row."""
        if self.shown is not None:
            return self.shown(row)
        value = self.of(row)
        if value is None:
            return wording.NOTHING
        return str(value) if self.digits is None or isinstance(value, str) else wording.fixed(value, self.digits)

    def sort_key(self, row: Row) -> str:
        """The value as text in full precision; empty where there is none."""
        value = self.of(row)
        if value is None:
            return ""
        return value if isinstance(value, str) else repr(value)


def columns_of(view: View, columns: Sequence[Column], rows: Sequence[Row]) -> list[Column]:
    """The columns that the view shows for these rows, in order. CSV always has the same columns."""
    return [
        column for column in columns
        if view in column.views
        and (view == "csv" or not column.only_if_known or any(column.words(row) != wording.NOTHING for row in rows))
    ]


def chosen(
    columns: Sequence[Column], keys: Sequence[str], groups: Mapping[str, Sequence[Column]] = MappingProxyType({})
) -> list[Column]:
    """The columns of these keys in this order, after those that name a row, in every view. `recalls` and `test_recalls`
    stand for seven columns each. groups: further columns, by the name that stands for them (`further_columns`).
    ValueError for an unknown key."""
    by_key = {column.key: column for group in (columns, *groups.values()) for column in group}
    named = {"recalls": list(RECALLS), "test_recalls": [f"{TEST}{name}" for name in RECALLS]}
    named |= {name: [column.key for column in group] for name, group in groups.items()}
    wanted = [key for given in keys for key in named.get(given, [given])]
    for key in wanted:
        known_name(key, [*by_key, *named], "column")
    first = [key for key in ("dataset", "network", "loss") if key in by_key]
    return [
        replace(by_key[key], views=by_key[key].views | _TABLES, only_if_known=False)
        for key in dict.fromkeys([*first, *wanted])
    ]


def further_columns(trials: Iterable[Mapping[str, Any]]) -> dict[str, list[Column]]:
    """Columns of scores that only some trials ask for, by the name that stands for them: `test.NAME`, recalls on one of
    `data.tests` and its M-Recall; `test_eccv` and `test_cxc`, scores by `evaluation.coco`. trials: resolved specs as
    plain data."""
    specs = list(trials)
    tests = dict.fromkeys(test for spec in specs for test in spec.get("data", {}).get("tests", {}))
    coco = [spec.get("evaluation", {}).get("coco") or {} for spec in specs]
    crisscrossed = [each["cxc"] for each in coco if each.get("cxc")]
    judged = {
        f"{TEST}eccv": ECCV if any(each.get("eccv_caption") for each in coco) else (),
        f"{TEST}cxc": (
            *(CXC if crisscrossed else ()), *(CXC_AMONG if any(map(has_all_crisscrossed, crisscrossed)) else ()),
        ),
    }
    return {f"{FURTHER}{test}": _of_test_set(test) for test in tests} | {
        key: [_judged_column(name) for name in names] for key, names in judged.items() if names
    }


BY_IMPORTANCE = (
    "loss", "best_m_recall", "m_recall_gain", "epochs_percent", "i2t_r1", "t2i_r1", "epochs_to_best",
    "seconds_per_epoch", "epochs_to_target", "seeds", "epochs_to_level", "device_seconds", "trials_in_words",
)
"""Columns of a terminal: it has those that fit its width, the first ones first. The first eight fit 80 columns."""
_TABLES: frozenset[View] = frozenset({"terminal", "page", "csv", "latex"})
_CSV: frozenset[View] = frozenset({"csv"})
_CONFIGURATIONS: frozenset[View] = frozenset({"configurations"})
_SCREEN: frozenset[View] = frozenset({"terminal", "page", "csv"})


def _csv(key: str, meaning: str, value: str | Callable[[Row], Value] = "", **more: Any) -> Column:
    return Column(key=key, meaning=meaning, value=value, views=_CSV, **more)


def _interval(
    key: str, bounds: str, empty: str, *, of: str = "", high: str = "", unit: str = "", level: str = "95 %"
) -> tuple[Column, Column]:
    """The ends of an interval. of: what it is an interval of, the key by default. bounds: the way to it. empty: the
    rest of the meaning of its lower end, high: of its upper end. level: of the interval, in words."""
    low = f"Lower end of the {level} interval of {of or key}{empty}"
    return (
        _csv(f"{key}_low", low, f"{bounds}.0", unit=unit),
        _csv(f"{key}_high", f"Upper end of that interval{high}", f"{bounds}.1", unit=unit),
    )


_STATUSES: tuple[AttemptStatus, ...] = ("finished", "pruned", "failed", "killed", "running")


def _attempts(row: Row, status: AttemptStatus) -> int:
    return row.counts.get(status, 0)


def _recall(row: Row, name: str) -> Value:
    return row.recalls.get(name)


def _recall_column(prefix: str, name: str) -> Column:
    """A recall or their sum. The two R@1 of the validation split stand in tables, the others in CSV and where chosen.
    """
    direction, _, cutoff = name.partition("_r")
    words = {"i2t": "image to text", "t2i": "text to image"}.get(direction)
    what = "Sum of the six recalls" if words is None else f"R@{cutoff} {words}"
    heading = "RSUM" if words is None else f"R@{cutoff}\n{direction}"
    test = prefix.removeprefix(FURTHER).strip("._")
    split = f"test set {test}" if prefix.startswith(FURTHER) else "test split"
    where = f"best checkpoint on the {split}" if prefix else "best validation"
    is_shown = not prefix and cutoff == "1"
    return Column(
        key=f"{prefix}{name}", heading=f"{test}\n{heading}" if prefix else heading, digits=1, better="higher",
        unit="per cent", meaning=f"{what} at the {where}, mean over the same seeds or searches as best_m_recall",
        value=partial(_recall, name=f"{prefix}{name}"), views=_TABLES if is_shown else _CSV, only_if_known=True,
    )


def _of_test_set(name: str) -> list[Column]:
    m_recall = Column(
        key=f"{FURTHER}{name}.m_recall", heading=f"{name}\nM-Recall", digits=1, better="higher", unit="per cent",
        meaning=f"M-Recall of the best checkpoint on the test set {name}, mean over the seeds that count",
        value=partial(_recall, name=f"{FURTHER}{name}.m_recall"), views=_CSV, only_if_known=True,
    )
    return [m_recall, *(_recall_column(f"{FURTHER}{name}.", recall) for recall in RECALLS)]


def _judged_column(name: str) -> Column:
    """name: of `ECCV`, `CXC` or `CXC_AMONG`, e.g. `eccv_i2t_map_at_r`."""
    judgements, way, score = name.split("_", 2)
    source = {"eccv": "ECCV Caption", "cxc": "CxC"}[judgements]
    what = {"map_at_r": "mAP@R", "r_precision": "R-Precision"}.get(score, f"R@{score.removeprefix('r')}")
    direction = " to ".join({"i": "image", "t": "text"}[side] for side in way.split("2"))
    return Column(
        key=f"{TEST}{name}", heading=f"{source}\n{what}\n{way}", digits=1, better="higher", unit="per cent",
        meaning=f"{what} {direction} by the judgements of {source} at the best checkpoint on the test split, mean over "
        "the same seeds or searches as best_m_recall",
        value=partial(_recall, name=f"{TEST}{name}"), views=_CSV, only_if_known=True,
    )


_RECALLS = tuple(_recall_column(prefix, name) for prefix in ("", TEST) for name in RECALLS)

OF_SEVERAL: tuple[Column, ...] = (
    Column(key="dataset", heading="data", meaning="The data set", kind="text", views=_CONFIGURATIONS),
    Column(key="study", meaning="The study that ran it", kind="text", views=_CONFIGURATIONS),
)
"""Columns before those of `COLUMNS` if a page has the boards of several studies."""

COLUMNS: tuple[Column, ...] = (
    Column(key="dataset", heading="data", meaning="The data set", kind="text", part="comparison"),
    Column(key="network", meaning="The network", kind="text", part="comparison"),
    Column(key="loss", meaning="The loss, with the marks of the notes that concern it", kind="text", part="name"),
    Column(key="cell", meaning="Network and loss, as the study calls them", kind="text", views=_CONFIGURATIONS),
    _csv("is_baseline", "Whether the others are compared with it", kind="text"),
    Column(
        key="best_m_recall", heading="best\nM-Recall", unit="per cent", better="higher", shown=wording.recall,
        meaning="Highest M-Recall on the validation split, mean over the seeds that count; of a tuned loss with "
        "several searches, over their means",
    ),
    _csv("best_m_recall_std", "Sample standard deviation of best_m_recall over seeds, of a tuned loss with several "
         "searches over their means; empty for one", unit="per cent"),
    *_interval("best_m_recall", "m_recall_bounds", "; empty for fewer than two seeds that chose nothing, and for two "
               "searches", unit="per cent"),
    _csv("search_std", "Standard deviation of M-Recall between searches; empty for one search", "spread.search",
         unit="points"),
    _csv("seed_std", "Standard deviation of M-Recall between seeds of one pick; empty for one search", "spread.seed",
         unit="points"),
    Column(
        key="m_recall_gain", heading="M-Recall\nover the\nbaseline", unit="points", better="higher",
        only_if_known=True,
        meaning="M-Recall less that of the baseline, mean over searches of tuned losses, else over paired seeds",
        value="comparison.m_recall", shown=wording.gain,
    ),
    *_interval("m_recall_gain", "comparison.m_recall_bounds",
               "; empty for one seed, and for fewer than three searches of a tuned loss", unit="points",
               level="corrected"),
    _csv("m_recall_gain_level", "Level of that interval, 0 to 1: the interval excludes 0 where gets_higher is decided",
         "comparison.height_level"),
    _csv("m_recall_gain_p", "P-value of m_recall_gain being chance (Welch's t of searches or paired t of seeds, Holm "
         "over the board)", "comparison.height_p"),
    _csv("gets_higher", "What the data support of the claim that the loss is higher than the baseline",
         "comparison.height", kind="text"),
    _csv("improvement", "Share of the seeds, 0 to 1, in which the loss is higher than the baseline, ties by half",
         "comparison.improvement"),
    *_interval("improvement", "comparison.improvement_bounds", "; empty for tuned losses",
               of="the probability that a seed is higher, at the level of m_recall_gain", level="corrected"),
    *_RECALLS,
    Column(
        key="configuration_in_words", heading="configuration", kind="text", width="wide", views=_CONFIGURATIONS,
        meaning="Hyperparameters that the search chose; of several searches each, after its mean M-Recall",
        value=wording.configurations,
    ),
    Column(
        key="seeds_in_words", heading="seeds", kind="text", width="brief", views=_CONFIGURATIONS,
        meaning="All seeds of the configuration; one that searched with its M-Recall, which is in no mean",
        value=wording.seeds,
    ),
    Column(
        key="test_m_recall", heading="test M-Recall", unit="per cent", better="higher", digits=1, width="brief",
        meaning="M-Recall of the best checkpoint on the test split, mean over the seeds that count",
        views=_CSV | _CONFIGURATIONS,
    ),
    Column(
        key="epochs_to_best", heading="epochs\nto best", unit="epochs", better="lower", part="epochs", digits=2,
        meaning="Epochs to the validation with the highest M-Recall, median over seeds",
    ),
    Column(
        key="epochs_to_level", heading="epochs\nto level", unit="epochs", better="lower", part="epochs", digits=2,
        meaning="Epochs to the first validation that noise cannot tell from the best, median of seeds",
    ),
    Column(
        key="epochs_to_target", heading="epochs to\nbaseline's\nbest", unit="epochs", better="lower", part="epochs",
        meaning="Epochs to the best M-Recall of the baseline's same seed, median over seeds (Kaplan-Meier); "
        "> where half did not",
        value="epochs_to_target.value", shown=wording.epochs_to_target,
    ),
    _csv("curve_noise",
         "Standard deviation of one validation around the smooth course of its curve; empty for short curves", "noise",
         unit="points"),
    *_interval("epochs_to_target", "epochs_bounds", "; empty for fewer than five seeds",
               high="; inf where seeds that never got there leave it open", unit="epochs"),
    _csv("epochs_to_target_is_censored",
         "Whether epochs_to_target is a lower bound, because seeds never reached the target",
         "epochs_to_target.censored", kind="text"),
    Column(
        key="epochs_percent", heading="epochs to\ntarget over\nbaseline's", unit="per cent", better="lower",
        only_if_known=True,
        part="epochs",
        meaning="Epochs to a share of the baseline's mean best M-Recall, beyond the baseline's own, in per cent of "
        "these, by mean logarithms over searches of tuned losses, else over paired seeds; > where some seeds of the "
        "loss never reach it, < of the baseline, and `not reached` where that leaves no number",
        value="comparison.epochs.percent", shown=lambda row: wording.pace(row.comparison),
    ),
    *_interval("epochs_percent", "comparison.epochs_bounds",
               "; empty for one seed, without epochs_percent, and for fewer than three searches of a tuned loss; -100 "
               "where seeds of the baseline never reach the target",
               high="; inf where seeds of the loss never reach it", unit="per cent", level="corrected"),
    _csv("epochs_level", "Level of that interval, 0 to 1: the interval excludes 0 where is_sooner is decided",
         "comparison.epochs_level"),
    _csv("epochs_p", "P-value of epochs_percent being chance (t of the logarithms, Holm over the board)",
         "comparison.epochs_p"),
    _csv("is_sooner", "What the data support of the claim that the loss needs fewer epochs to the target",
         "comparison.epochs_answer", kind="text"),
    _csv("target_m_recall", "That target", "comparison.epochs.target", unit="per cent"),
    _csv("target_share", "Share of the baseline's mean best M-Recall, 0 to 1, that the target is",
         "comparison.epochs.share"),
    _csv("seeds_without_target", "Seeds that never reach the target; they count with their last epoch",
         "comparison.epochs.missed", better="lower"),
    Column(
        key="difference_percent", heading="Difference\n(untested)", unit="per cent", better="lower", part="epochs",
        meaning="Epochs to the baseline's best beyond its own, in per cent of its own, median over pairs of seeds; "
        "`not reached` where seeds that never get there leave no number",
        value="difference.percent", shown=wording.difference_of, only_if_known=True,
    ),
    _csv("difference_is_lower_bound", "Whether difference_percent is only bounded from below",
         "difference.is_lower_bound", kind="text"),
    _csv("difference_low",
         "Lower end of the 95 % interval of Difference; empty for fewer than five pairs of seeds", "difference.low",
         unit="per cent"),
    _csv("difference_high",
         "Upper end of that interval; inf where seeds that never reached the target leave it open", "difference.high",
         unit="per cent"),
    _csv("censored_share", "Share of the pairs of seeds, 0 to 1, in which the loss never reached the target",
         "difference.censored_share", better="lower"),
    _csv("seed_pairs", "Seeds that ran with both the loss and the baseline, and count",
         lambda row: row.difference.pairs if row.difference else 0),
    _csv("resolution_epochs", "Largest gap between two validations: smaller differences of epochs mean nothing",
         unit="epochs"),
    Column(
        key="seconds_per_epoch", heading="s/epoch", unit="seconds", better="lower", digits=1, part="cost",
        meaning="Training time of one epoch, without validations, median over seeds",
    ),
    Column(
        key="device_seconds", heading="device-\nseconds", unit="seconds", better="lower", digits=0, part="cost",
        meaning="How long everything that ran occupied its device, pruned and failed trials included",
        value="cost.device_seconds", views=_SCREEN,
    ),
    Column(
        key="usd", heading="US$", unit="dollars", better="lower", digits=2, part="cost", only_if_known=True,
        meaning="What the nodes cost for the time in device-seconds, by the price in their labels",
        value="cost.whole_usd", views=_SCREEN,
    ),
    Column(
        key="attempts_in_words", heading="attempts", kind="text", part="cost", views=_CONFIGURATIONS,
        meaning="Executions of all trials, by status", value=wording.attempts,
    ),
    Column(
        key="epochs_charged", heading="epochs charged", unit="epochs", better="lower", digits=1, part="cost",
        meaning="Epochs that everything trained, pruned and failed trials included",
        value="cost.epochs", views=_CSV | _CONFIGURATIONS,
    ),
    Column(
        key="wasted_epochs", heading="of them lost", unit="epochs", better="lower", digits=1, part="cost",
        meaning="Epochs that a crash lost, so that they were trained again",
        value="cost.wasted_epochs", views=_CSV | _CONFIGURATIONS,
    ),
    _csv("search_epochs", "Epochs that the trials of the search trained, without those that a crash lost",
         "search_budget.trained", unit="epochs", part="cost"),
    Column(
        key="budget_epochs", heading="search budget", unit="epochs", kind="text", part="cost", only_if_known=True,
        meaning="Epochs that the search trained, of those it was given, the same for every cell; a trial is begun "
        "where half of it is left and then finished. A row that is off by more than one whole training has a mark",
        value="search_budget.epochs", views=_CSV | _CONFIGURATIONS,
        shown=lambda row: row.search_budget.words if row.search_budget else wording.NOTHING,
    ),
    Column(
        key="trials", part="cost", views=frozenset({"page", "csv"}),
        meaning="Configurations and seeds tried, pruned and failed ones included",
    ),
    Column(
        key="trials_in_words", heading="trials", part="cost", views=frozenset({"terminal"}), value=wording.trials,
        meaning="Configurations and seeds tried, and the attempts that did not run to their end",
    ),
    _csv("attempts", "Executions of all trials; a retry is a new one", part="cost"),
    *(
        _csv(f"attempts_{status}", f"Attempts with the status {status}",
             partial(_attempts, status=status), part="cost")
        for status in _STATUSES
    ),
    _csv("configurations", "Configurations that the search tried", part="cost"),
    _csv("searches", "Searches with seeds that count", lambda row: len({seed.repeat for seed in row.headline})),
    _csv("is_tuned", "Whether a search tried more than one configuration, so that searches are compared", kind="text"),
    _csv("collapsed_seeds", "Seeds among those that count that collapsed or diverged", better="lower"),
    _csv("searching_seed", "The seed whose curve chose the configuration; empty where nothing was searched",
         "searching_seed.seed"),
    _csv("searching_seed_m_recall", "Best M-Recall of that seed: a maximum over configurations, and optimistic",
         "searching_seed.best_m_recall", unit="per cent"),
    Column(
        key="seeds", value=lambda row: len(row.headline),
        meaning="How many seeds the numbers come from: those that did not choose the configuration, or, where there "
        "are none, those that did",
    ),
    _csv("configuration", "Hyperparameters that the search chose, as JSON",
         lambda row: json.dumps(row.configuration, sort_keys=True, default=str), kind="text"),
    _csv("flags", "What to know before quoting the row, see FLAGS in board_notes.py",
         lambda row: " ".join(row.flags), kind="text"),
    _csv("baseline_collapsed", "Why there is no baseline to compare with; empty if there is one", wording.collapse,
         kind="text"),
    _csv("not_comparable", "Why the row is not compared; empty if it is", kind="text"),
)

LEGEND = (
    "M-Recall in per cent on the validation split, ± over seeds or searches; [low, high]: 95 % interval, of a "
    "difference that of its test, corrected for all comparisons; i2t: image to text, t2i: text to image.",
    "Target: 95 % of the baseline's mean best, unless another share was chosen; −40 %: 40 % fewer epochs than the "
    "baseline; >: more than, <: less than.",
)
"""What the numbers of the tables mean, the same below every board."""
MORE_LEGEND = (
    "Of a tuned loss with several searches ± and interval are over the means of searches. With one search they are "
    "over its seeds: another search may differ more.",
    f"Intervals are over finished seeds that chose no configuration: of mean M-Recall from {MEAN_SEEDS} seeds or "
    f"{FEWEST_REPEATS} searches on (Student's t), of median epochs and Difference from {MEDIAN_SEEDS} seeds on (order "
    "statistics). Difference is relative to the baseline's own best (LSEH Eq. 10), and is not tested.",
    f"Tests: paired seeds by Student's t (p times {FOR_LONG_TAILS:g}, which allows for long tails); tuned losses by "
    "Welch's t over the means of searches (of a loss that was not tuned, over its seeds); epochs by their logarithms. "
    f"P-values are corrected after Holm over all comparisons of the board of each kind, at {100 * ALPHA:g} %, and "
    "intervals of differences alike: one excludes 0 where its claim is decided, and only there. No claim is made about "
    "other validation images.",
    "Epochs to level end at the first validation within 2.77 standard deviations of the best; the deviation is that of "
    "one validation of the noisiest loss.",
)
"""The same at more length, for notes."""
EXPECTED_BEST = (
    f"Expected best: mean over all orders of the recorded trials, and where it lies in {100 * BAND:.0f} % of these "
    "orders (of a loss with several searches: from the lowest to the highest of them), which is no interval for "
    "another search. Of a sampler that learns from its trials it tells less than of one that does not. Validation, by "
    "the seed that searched: a maximum, and optimistic."
)
