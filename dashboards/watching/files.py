"""Paths and contents of every file under dashboards/ that is made from code."""

from __future__ import annotations

import csv
import io
from typing import Any

import yaml

from vsetune.nightly.night_metrics import NIGHT_METRICS
from vsetune.study.exported_metrics import METRICS
from watching.alerts import rules
from watching.panels import BOARDS
from watching.scraping import aws, kuberay, laptop

_MADE = "# Made by `python dashboards/make.py` from dashboards/watching/; change it there.\n"
_HEADS = {
    "prometheus/laptop.yaml": "# `make dashboards` puts it into $VSETUNE_HOME/prometheus, starts Prometheus with it.\n",
    "prometheus/aws.yaml": "# For Prometheus on the head node or beside it: set `region` and the cluster's name. The\n"
                           "# role of its instance needs ec2:DescribeInstances; alerts.yaml lies beside it.\n",
    "prometheus/kuberay.yaml": "# For the Prometheus operator, in the namespace of the Ray cluster.\n",
    "prometheus/alerts.yaml": "# Tried by `promtool test rules dashboards/prometheus/alerts_test.yaml`.\n",
}


def files_of_prometheus() -> dict[str, str]:
    """Texts by path under dashboards/."""
    plain: dict[str, list[Any]] = {
        "prometheus/laptop.yaml": [laptop()], "prometheus/aws.yaml": [aws()], "prometheus/kuberay.yaml": kuberay(),
        "prometheus/alerts.yaml": [rules()],
    }
    return {"prometheus/metrics.csv": _metrics()} | {
        path: _MADE + _HEADS[path] + "---\n".join(
            yaml.safe_dump(document, sort_keys=False, width=1000) for document in documents
        )
        for path, documents in plain.items()
    }


def files_of_grafana() -> dict[str, str]:
    """Texts by path under dashboards/. Needs grafana-foundation-sdk."""
    from watching.grafana import grafana_json

    return {f"grafana/{board.name}.json": grafana_json(board) for board in BOARDS}


def _metrics() -> str:
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(("metric", "unit", "labels", "what it is"))
    rows.writerows((each.in_prometheus, each.unit, ", ".join(each.labels), each.help)
                   for each in (*METRICS, *NIGHT_METRICS))
    return table.getvalue()
