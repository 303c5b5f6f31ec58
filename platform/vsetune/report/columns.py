"""Every column of the leaderboard, declared once for terminal, page, CSV and LaTeX.

A new column is one more entry of COLUMNS, at its place in the order; no view names a column.
"""

from __future__ import annotations

import json

from vsetune.records.events import AttemptStatus
from vsetune.report import findings, wording
from vsetune.report.column import CSV as _CSV
from vsetune.report.column import OF_EPOCHS, OF_GAIN, OF_HEIGHT, OF_SIGNS, Column, View
from vsetune.report.rows import Row

_SCREEN: frozenset[View] = frozenset({"terminal", "page", "csv"})
_CONFIGURATIONS: frozenset[View] = frozenset({"configurations"})
_STATUSES: tuple[AttemptStatus, ...] = ("finished", "pruned", "failed", "killed", "running")


def _attempts_that(status: AttemptStatus) -> Column:
    return Column(
        key=f"attempts_{status}", meaning=f"Attempts with the status {status}", part="cost", views=_CSV,
        value=lambda row: row.counts.get(status, 0),
    )


def _configuration(row: Row) -> str:
    return wording.configuration(row.configuration) if row.seeds else wording.NOTHING


OF_SEVERAL: tuple[Column, ...] = (
    Column(
        key="dataset", heading="data", meaning="The data set", kind="text", value=lambda row: row.dataset,
        views=_CONFIGURATIONS,
    ),
    Column(
        key="study", meaning="The study that ran it", kind="text", value=lambda row: row.study, views=_CONFIGURATIONS,
    ),
)
"""Columns before those of `COLUMNS` if a page has the boards of several studies."""

COLUMNS: tuple[Column, ...] = (
    Column(
        key="dataset", heading="data", meaning="The data set", kind="text", part="comparison",
        value=lambda row: row.dataset,
    ),
    Column(
        key="network", meaning="The network", kind="text", part="comparison",
        value=lambda row: row.network,
    ),
    Column(
        key="loss", meaning="The loss, with the marks of the notes that concern it", kind="text", part="name",
        value=lambda row: row.loss,
    ),
    Column(
        key="cell", meaning="Network and loss, as the study calls them", kind="text", views=_CONFIGURATIONS,
        value=lambda row: row.cell,
    ),
    Column(
        key="is_baseline", meaning="Whether the others are compared with it", kind="text", views=_CSV,
        value=lambda row: row.is_baseline,
    ),
    Column(
        key="best_m_recall", heading="best\nM-Recall", unit="per cent", better="higher",
        meaning="Highest M-Recall on the validation split, mean over the seeds that count",
        value=lambda row: row.best_m_recall, shown=wording.recall,
    ),
    Column(
        key="best_m_recall_std", unit="per cent", views=_CSV,
        meaning="Sample standard deviation of best_m_recall over seeds; empty for one seed",
        value=lambda row: row.best_m_recall_std,
    ),
    *OF_HEIGHT,
    Column(
        key="m_recall_gain", heading="M-Recall\nover the\nbaseline", unit="points", better="higher",
        meaning="M-Recall less that of the baseline, mean over the seeds that finished for both and chose nothing",
        value=lambda row: row.comparison.m_recall if row.comparison else None, shown=findings.gain,
    ),
    *OF_GAIN,
    Column(
        key="configuration_in_words", heading="configuration", kind="text", width="wide", views=_CONFIGURATIONS,
        meaning="Hyperparameters that the search chose", value=_configuration,
    ),
    Column(
        key="seeds_in_words", heading="seeds", kind="text", width="brief", views=_CONFIGURATIONS,
        meaning="All seeds of the configuration; one that searched with its M-Recall, which is in no mean",
        value=wording.seeds,
    ),
    Column(
        key="test_m_recall", heading="test M-Recall", unit="per cent", better="higher", digits=1, width="brief",
        meaning="M-Recall of the best checkpoint on the test split, mean over the seeds that count",
        value=lambda row: row.test_m_recall, views=_CSV | _CONFIGURATIONS,
    ),
    Column(
        key="epochs_to_best", heading="epochs\nto best", unit="epochs", better="lower", part="epochs", digits=2,
        meaning="Epochs to the validation with the highest M-Recall, median over seeds",
        value=lambda row: row.epochs_to_best,
    ),
    Column(
        key="epochs_to_level", heading="epochs\nto level", unit="epochs", better="lower", part="epochs", digits=2,
        meaning="Epochs to the first validation that the noise of the curve cannot tell from the best, median of seeds",
        value=lambda row: row.epochs_to_level,
    ),
    Column(
        key="epochs_to_target", heading="epochs to\nbaseline's\nbest", unit="epochs", better="lower", part="epochs",
        meaning="Epochs to the best M-Recall of the baseline's same seed, median over seeds (Kaplan-Meier); "
        "> where some did not",
        value=lambda row: row.epochs_to_target.value if row.epochs_to_target else None,
        shown=wording.epochs_to_target,
    ),
    *OF_EPOCHS,
    Column(
        key="epochs_to_target_is_censored", kind="text", views=_CSV,
        meaning="Whether epochs_to_target is a lower bound, because seeds never reached the target",
        value=lambda row: row.epochs_to_target.censored if row.epochs_to_target else None,
    ),
    Column(
        key="difference_percent", heading="Difference", unit="per cent", better="lower", part="epochs",
        meaning="Epochs to the baseline's best beyond its own, in per cent of its own, median over pairs of seeds",
        value=lambda row: row.difference.percent if row.difference else None,
        shown=lambda row: wording.difference(row.difference),
    ),
    Column(
        key="difference_is_lower_bound", kind="text", views=_CSV,
        meaning="Whether difference_percent is only bounded from below",
        value=lambda row: row.difference.is_lower_bound if row.difference else None,
    ),
    Column(
        key="difference_low", unit="per cent", views=_CSV,
        meaning="Lower end of the 95 % interval of Difference; empty for fewer than five pairs of seeds",
        value=lambda row: row.difference.low if row.difference else None,
    ),
    Column(
        key="difference_high", unit="per cent", views=_CSV,
        meaning="Upper end of that interval; inf where seeds that never reached the target leave it open",
        value=lambda row: row.difference.high if row.difference else None,
    ),
    Column(
        key="censored_share", views=_CSV, better="lower",
        meaning="Share of the pairs of seeds, 0 to 1, in which the loss never reached the target",
        value=lambda row: row.difference.censored_share if row.difference else None,
    ),
    *OF_SIGNS,
    Column(
        key="seed_pairs", meaning="Seeds that ran with both the loss and the baseline, and count", views=_CSV,
        value=lambda row: row.difference.pairs if row.difference else 0,
    ),
    Column(
        key="resolution_epochs", unit="epochs", views=_CSV,
        meaning="Largest gap between two validations: smaller differences of epochs mean nothing",
        value=lambda row: row.resolution_epochs,
    ),
    Column(
        key="seconds_per_epoch", heading="s/epoch", unit="seconds", better="lower", digits=1, part="cost",
        meaning="Training time of one epoch, without validations, median over seeds",
        value=lambda row: row.seconds_per_epoch,
    ),
    Column(
        key="device_seconds", heading="device-\nseconds", unit="seconds", better="lower", digits=0, part="cost",
        meaning="How long everything that ran occupied its device, pruned and failed trials included",
        value=lambda row: row.cost.device_seconds, views=_SCREEN,
    ),
    Column(
        key="usd", heading="US$", unit="dollars", better="lower", digits=2, part="cost", only_if_known=True,
        meaning="What the nodes cost for the time in device-seconds, by the price in their labels",
        value=lambda row: row.cost.whole_usd, views=_SCREEN,
    ),
    Column(
        key="attempts_in_words", heading="attempts", kind="text", part="cost", views=_CONFIGURATIONS,
        meaning="Executions of all trials, by status", value=wording.attempts,
    ),
    Column(
        key="epochs_charged", heading="epochs charged", unit="epochs", better="lower", digits=1, part="cost",
        meaning="Epochs that everything trained, pruned and failed trials included",
        value=lambda row: row.cost.epochs, views=_CSV | _CONFIGURATIONS,
    ),
    Column(
        key="wasted_epochs", heading="of them lost", unit="epochs", better="lower", digits=1, part="cost",
        meaning="Epochs that a crash lost, so that they were trained again",
        value=lambda row: row.cost.wasted_epochs, views=_CSV | _CONFIGURATIONS,
    ),
    Column(
        key="search_epochs", unit="epochs", part="cost", views=_CSV,
        meaning="Epochs that the trials of the search trained, without those that a crash lost",
        value=lambda row: row.search_budget.trained if row.search_budget else None,
    ),
    Column(
        key="budget_epochs", heading="search budget", unit="epochs", kind="text", part="cost", only_if_known=True,
        meaning="Epochs that the search trained, of those it was given, the same for every cell; a trial is begun "
        "where half of it is left and then finished. A row that is off by more than one whole training has a mark",
        value=lambda row: row.search_budget.epochs if row.search_budget else None,
        shown=lambda row: row.search_budget.words if row.search_budget else wording.NOTHING,
        views=_CSV | _CONFIGURATIONS,
    ),
    Column(
        key="trials", part="cost", views=frozenset({"page", "csv"}),
        meaning="Configurations and seeds tried, pruned and failed ones included", value=lambda row: row.trials,
    ),
    Column(
        key="trials_in_words", heading="trials", part="cost", views=frozenset({"terminal"}),
        meaning="Configurations and seeds tried, and the attempts that did not run to their end",
        value=wording.trials,
    ),
    Column(
        key="attempts", part="cost", views=_CSV,
        meaning="Executions of all trials; a retry is a new one", value=lambda row: row.attempts,
    ),
    *map(_attempts_that, _STATUSES),
    Column(
        key="configurations", part="cost", views=_CSV,
        meaning="Configurations that the search tried", value=lambda row: row.configurations,
    ),
    Column(
        key="searching_seed", views=_CSV,
        meaning="The seed whose curve chose the configuration; empty where nothing was searched",
        value=lambda row: row.searching_seed.seed if row.searching_seed else None,
    ),
    Column(
        key="searching_seed_m_recall", unit="per cent", views=_CSV,
        meaning="Best M-Recall of that seed: a maximum over configurations, and optimistic",
        value=lambda row: row.searching_seed.best_m_recall if row.searching_seed else None,
    ),
    Column(
        key="seeds",
        meaning="How many seeds the numbers come from: those that did not choose the configuration, or, where there "
        "are none, those that did",
        value=lambda row: len(row.headline),
    ),
    Column(
        key="configuration", meaning="Hyperparameters that the search chose, as JSON", kind="text", views=_CSV,
        value=lambda row: json.dumps(row.configuration, sort_keys=True, default=str),
    ),
    Column(
        key="flags", meaning="What to know before quoting the row, see FLAGS in rows.py", kind="text", views=_CSV,
        value=lambda row: " ".join(row.flags),
    ),
    Column(
        key="baseline_collapsed", meaning="Why there is no baseline to compare with; empty if there is one",
        kind="text", views=_CSV, value=wording.collapse,
    ),
    Column(
        key="not_comparable", meaning="Why the row is not compared; empty if it is", kind="text", views=_CSV,
        value=lambda row: row.not_comparable,
    ),
)
