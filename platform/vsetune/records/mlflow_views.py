"""Setup of MLflow's UI for a study: charts of its runs, in groups that fold; data sets as inputs of runs.

MLflow stores a shared view of an experiment as a tag `mlflow.sharedViewState.KEY`, which a link names. No metric is
renamed for the groups: the view assigns each chart to its group. Unlisted metrics go to MLflow's own groups, so an
older or newer set of metrics is shown in full.
"""

from __future__ import annotations

import json
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag

from vsetune.records.events import AttemptStart
from vsetune.records.mlflow_client import PIECE
from vsetune.records.run_descriptions import VIEW_KEY, data_set_facts, experiment_links

VIEW_TAG = f"mlflow.sharedViewState.{VIEW_KEY}"
_GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "M-Recall": ("LINE", ("m_recall",)),
    "Results": ("BAR", ("best_m_recall", "epochs_to_best")),
    "Recalls, text to image": ("LINE", ("t2i_r1", "t2i_r5", "t2i_r10")),
    "Recalls, image to text": ("LINE", ("i2t_r1", "i2t_r5", "i2t_r10")),
    "Training": ("LINE", ("train_loss", "gradient_norm", "learning_rate", "pairs_per_second")),
    "Cost": ("LINE", ("train_seconds", "device_seconds", "pairs_seen", "epoch")),
}
"""Per group the kind of its charts (LINE over the training steps, BAR of the last value) and their metrics."""
_OF_M_RECALL_ALONE = ("M-Recall", "Results")
"""The groups of a study with `series: m_recall`."""


def keep_view(client: MlflowClient, experiment_id: str, note: str, *, series: str) -> None:
    """Set up the charts of an experiment, and link its runs and charts below the first line of its description.

    MLflow stores a person's changes to the charts under another key. note: the description. series: `all` or
    `m_recall`, as the study exports them.
    """
    client.set_experiment_tag(experiment_id, VIEW_TAG, json.dumps(charts_view(series), separators=(",", ":")))
    first, _, more = note.partition("\n\n")
    described = "\n\n".join([first, experiment_links(experiment_id), more])
    client.set_experiment_tag(experiment_id, "mlflow.note.content", described[:PIECE])


def charts_view(series: str) -> dict[str, Any]:
    """The state of MLflow's page of runs: groups, and the charts in each. series: as in `keep_view`."""
    groups = {name: group for name, group in _GROUPS.items() if series == "all" or name in _OF_M_RECALL_ALONE}
    names = [*groups, "Model metrics", "System metrics"]
    place_of = {name: f"vsetune-{place}" for place, name in enumerate(names)}
    sections = [
        {"uuid": place, "name": name, "display": True, "isReordered": False, "deleted": False, "isGenerated": True}
        for name, place in place_of.items()
    ]
    charts = [
        chart for name, (kind, metrics) in groups.items() for metric in metrics
        for chart in (_line(metric, place_of[name]) if kind == "LINE" else _bar(metric, place_of[name]))
    ]
    return {
        "compareRunSections": sections, "compareRunCharts": charts, "isAccordionReordered": True,
        "hideEmptyCharts": True,
        "globalLineChartConfig": {"xAxisKey": "step", "selectedXAxisMetricKey": "", "lineSmoothness": 0},
        "orderByKey": "metrics.`best_m_recall`", "orderByAsc": False, "runsHiddenMode": "FIRST_20_RUNS",
        "selectedColumns": [
            "attributes.`Source`", "attributes.`Dataset`", "tags.`cell`", "tags.`status`", "params.`seed`",
            "metrics.`best_m_recall`", "metrics.`epochs_to_best`",
        ],
    }


def keep_data_sets(client: MlflowClient, run_id: str, start: AttemptStart) -> None:
    """Log the data set of an attempt as an input of its run; repeating it changes nothing."""
    facts = data_set_facts(start)
    if facts is None:
        return
    is_local = "://" not in facts["place"]
    data = Dataset(
        name=facts["name"], digest=facts["digest"], source_type="local" if is_local else facts["place"].split(":")[0],
        source=json.dumps({"uri": facts["place"]}),
        profile=json.dumps({key: value for key, value in start.protocol.items() if key in ("images", "captions")}),
    )
    client.log_inputs(run_id, datasets=[DatasetInput(data, tags=[InputTag("mlflow.data.context", facts["split"])])])


def _line(metric: str, group: str) -> list[dict[str, Any]]:
    """A line chart, marked as MLflow's own (isGenerated): MLflow then adds no second chart of the metric."""
    return [_chart("LINE", metric, group) | {
        "isGenerated": True, "lineSmoothness": 0, "scaleType": "linear", "xAxisScaleType": "linear",
        "xAxisKey": "step", "selectedXAxisMetricKey": "", "yAxisKey": "metric", "yAxisExpressions": [],
        "selectedMetricKeys": [metric], "ignoreOutliers": False, "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True, "range": {},
    }]


def _bar(metric: str, group: str) -> list[dict[str, Any]]:
    """A bar chart, not marked as MLflow's own, since MLflow turns its own bars into lines. A deleted line chart marked
    as its own keeps it from adding one."""
    removed = _chart("LINE", metric, group) | {"uuid": f"vsetune-no-{metric}", "isGenerated": True, "deleted": True}
    return [_chart("BAR", metric, group) | {"isGenerated": False}, removed]


def _chart(kind: str, metric: str, group: str) -> dict[str, Any]:
    return {
        "type": kind, "uuid": f"vsetune-{metric}", "metricSectionId": group, "metricKey": metric, "deleted": False,
        "runsCountToCompare": 20,
    }
