"""Alert rules with their texts. All thresholds are here."""

from __future__ import annotations

from dataclasses import dataclass

from vsetune.nightly import night_metrics as nights
from vsetune.study import exported_metrics as ours

SILENT_STUDY_S, SILENT_TRIAL_S = 900, 1800
FAILED_SHARE, ENOUGH_ATTEMPTS = 0.2, 5
BACKLOG_RECORDS = 500
USD_PER_DAY = 200
SILENT_NIGHTLY_S = 36 * 3600


@dataclass(frozen=True)
class Alert:
    """A rule. hold: how long its condition must last. summary, fix: a sentence each, with templates."""

    name: str
    expr: str
    hold: str
    severity: str
    summary: str
    fix: str


_OPEN = f'sum by (study) (max by (study, state) ({ours.STUDY_TRIALS.in_prometheus}{{state=~"running|waiting"}}))'
_OPEN_AT = _OPEN.replace("by (study", "by (study, instance")
_BY_STATE = f"max by (study, cell, state, kind) ({ours.CELL_ATTEMPTS.in_prometheus}"
_ENDED = f'sum by (study) ({_BY_STATE}{{state!="running"}}))'
_FAILED = f'sum by (study) ({_BY_STATE}{{state="failed"}}))'

ALERTS = (
    Alert(
        "VsetuneStudyStuck",
        f"(time() - max by (study) ({ours.STUDY_LAST_REPORT.in_prometheus}) > {SILENT_STUDY_S}) and on (study) "
        f"({_OPEN} > 0)", "1m", "critical",
        "study {{ $labels.study }}: no trial has reported for {{ $value | humanizeDuration }}",
        "look at the driver's log; a study that waits for nodes needs some, one that hangs goes on with --resume",
    ),
    Alert(
        "VsetuneDriverGone",
        f"(last_over_time(({_OPEN_AT})[15m:30s]) > 0) unless on (study) ({_OPEN}) unless on (study) "
        f"(max by (study) (last_over_time({ours.STUDY_STOP_REQUESTED.in_prometheus}[15m])) == 1) and on (instance) "
        'up{job="ray"} == 1',
        "2m", "critical",
        "study {{ $labels.study }}: its driver is gone and {{ $value }} trials are open",
        "start it again with --resume; results so far are safe",
    ),
    Alert(
        "VsetuneTrialWithoutValidation",
        f"time() - max by (study, trial) ({ours.TRIAL_LAST_VALIDATION.in_prometheus}) > {SILENT_TRIAL_S}", "1m",
        "warning",
        "trial {{ $labels.trial }} of {{ $labels.study }}: no validation for {{ $value | humanizeDuration }}",
        "compare with the trial's earlier validations; resources.silence_timeout_s ends workers that hang",
    ),
    Alert(
        "VsetuneAttemptsFail",
        f"({_FAILED} / {_ENDED} > {FAILED_SHARE}) and on (study) ({_ENDED} >= {ENOUGH_ATTEMPTS})", "1m", "warning",
        "study {{ $labels.study }}: {{ $value | humanizePercentage }} of its attempts have failed",
        "vsetune trial show STUDY/TRIAL has the reason of each; when the cause is mended, --retry-failed",
    ),
    Alert(
        "VsetuneJournalBacklog",
        f"max by (study) ({ours.STUDY_JOURNAL_BACKLOG.in_prometheus}) > {BACKLOG_RECORDS}", "10m", "warning",
        "study {{ $labels.study }}: {{ $value }} records wait for the tracking store",
        "bring the tracking store back; nothing is lost, the journal holds the records",
    ),
    Alert(
        "VsetuneSpend",
        f"sum(max by (node_type) ({ours.CLUSTER_PRICE.in_prometheus})) * 24 > {USD_PER_DAY}", "30m", "warning",
        "the cluster costs {{ $value | printf \"%.0f\" }} USD a day at the moment",
        "lower max_workers in cluster.yaml or stop a study; the threshold stands in dashboards/watching/alerts.py",
    ),
    Alert(
        "VsetuneNoPrice", f"max by (study) ({ours.STUDY_UNPRICED_TRIALS.in_prometheus}) > 0 and on () "
        f"(sum(max by (node_type) ({ours.CLUSTER_PRICE.in_prometheus})) > 0)", "10m", "info",
        "study {{ $labels.study }}: {{ $value }} trials run on nodes without a price",
        "give every node type the label vsetune.io/usd-per-hour, or its cost is counted nowhere",
    ),
)


_REGRESSED = f"max by ({', '.join(nights.OF_STREAM)}) ({nights.REGRESSED.in_prometheus})"
NIGHT_ALERTS = (
    Alert(
        "VsetuneNightlyRegression", f"sum by (nightly) ({_REGRESSED}) > 0", "0m", "warning",
        "nightly {{ $labels.nightly }}: {{ $value }} measures of cells are worse than their own nights",
        "the report of the night names the first suspects; git bisect run vsetune nightly check finds the commit, "
        "vsetune nightly accept accepts a change that is meant",
    ),
    Alert(
        "VsetuneNightlyCouldNotRun", f"max by (nightly) ({nights.EXIT_CODE.in_prometheus}) == 2", "0m", "critical",
        "nightly {{ $labels.nightly }}: the last night could not run, or not all of it",
        "its report says why; mend that and run it again, an interrupted night goes on",
    ),
    Alert(
        "VsetuneNightlySilent",
        f"time() - max by (nightly) ({nights.LAST_COMPLETE.in_prometheus}) > {SILENT_NIGHTLY_S} or "
        f"time() - max by (nightly) ({nights.LAST_REPORT.in_prometheus}) > {SILENT_NIGHTLY_S}", "5m", "critical",
        "nightly {{ $labels.nightly }}: no complete night for {{ $value | humanizeDuration }}",
        "see whether its timer still runs and what its last report says",
    ),
    Alert(
        "VsetuneNightlyIncomplete",
        f'max by (nightly) ({nights.ROWS.in_prometheus}{{verdict="missing"}}) > 0', "0m", "info",
        "nightly {{ $labels.nightly }}: {{ $value }} measures of cells were not measured in the last night",
        "its report says why; what was not measured is not judged",
    ),
)
EVERY_ALERT = (*ALERTS, *NIGHT_ALERTS)


def rules() -> dict[str, object]:
    """The rule file as plain data."""
    return {"groups": [
        {"name": "vsetune", "rules": [_plain(alert) for alert in ALERTS]},
        {"name": "vsetune-nightly", "rules": [_plain(alert) for alert in NIGHT_ALERTS]},
    ]}


def _plain(alert: Alert) -> dict[str, object]:
    return {
        "alert": alert.name, "expr": alert.expr, "for": alert.hold, "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "fix": alert.fix},
    }
