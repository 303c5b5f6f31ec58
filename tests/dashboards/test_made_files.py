"""The committed dashboards, rules and scrape configurations are what the code makes, and Prometheus takes them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from vsetune.nightly.night_metrics import NIGHT_METRICS
from vsetune.study import exported_metrics as ours
from vsetune.study.exported_metrics import METRICS
from watching.alerts import EVERY_ALERT
from watching.files import files_of_grafana, files_of_prometheus
from watching.panels import BOARDS, WHY_EMPTY, Board, Panel, every_panel, filled

FOLDER = Path(__file__).parents[2] / "dashboards"
ALL_METRICS = (*METRICS, *NIGHT_METRICS)
MADE = files_of_prometheus() | files_of_grafana()
PROMTOOL = shutil.which("promtool")
PANELS = [pytest.param(panel, id=f"{board.name}: {panel.title}") for board, panel in every_panel()]
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not on PATH; it comes with prometheus")
RAYS_OWN = re.compile(r"ray_(?:node|resources)\w*")


def ours_in(text: str) -> set[str]:
    return set(re.findall(r"(?:ray_vsetune|vsetune_nightly)_\w+", text))


def promtool(*arguments: str) -> str:
    done = subprocess.run([str(PROMTOOL), *arguments], cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("path", "text"), MADE.items(), ids=MADE)
def test_a_file_is_what_the_code_makes(path: str, text: str) -> None:
    assert (FOLDER / path).read_text(encoding="utf-8") == text, "run `python dashboards/make.py`"
    assert path.endswith(".csv") or all(isinstance(document, dict) for document in yaml.safe_load_all(text))


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_a_dashboard_has_every_panel_and_names_no_data_source(board: Board) -> None:
    plain = json.loads((FOLDER / "grafana" / f"{board.name}.json").read_text(encoding="utf-8"))
    assert [
        (panel["title"], panel["targets"][0]["expr"], panel["fieldConfig"]["defaults"]["noValue"])
        for panel in plain["panels"]
    ] == [(panel.title, panel.expr, WHY_EMPTY[panel.needs]) for panel in board.panels]
    used = [each["datasource"]["uid"] for panel in plain["panels"] for each in (panel, panel["targets"][0])]
    assert set(used) == {"${datasource}"}
    curves = [panel["fieldConfig"]["defaults"] for panel in plain["panels"] if panel["type"] == "timeseries"]
    modes = {each["color"]["mode"] for each in curves}
    assert modes == {"palette-classic"}, "Grafana's other palettes may give two series one colour"
    assert [variable["name"] for variable in plain["templating"]["list"]] == ["datasource", *board.variables]


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_asks_for_metrics_that_somebody_exports(panel: Panel) -> None:
    known = {metric.in_prometheus for metric in ALL_METRICS}
    assert ours_in(panel.expr) <= known
    assert ours_in(panel.expr) or RAYS_OWN.search(panel.expr) or "up{" in panel.expr
    assert "$" not in filled(panel.expr)
    labels = {label for metric in ALL_METRICS for label in metric.labels} | {"instance", "State"}
    assert set(re.findall(r"\{\{(\w+)\}\}", panel.legend)) <= labels


@pytest.mark.parametrize("panel", PANELS)
def test_an_empty_panel_says_what_its_metrics_need(panel: Panel) -> None:
    needs = {metric.in_prometheus: "price" for metric in (ours.CELL_COST, ours.CELL_PRICE, ours.CLUSTER_PRICE)}
    needs |= {metric.in_prometheus: "validation" for metric in (
        ours.TRIAL_M_RECALL, ours.TRIAL_EPOCHS, ours.TRIAL_LOSS, ours.TRIAL_PAIRS_PER_SECOND, ours.TRIAL_DATA_WAIT)}
    needs |= {metric.in_prometheus: "night" for metric in NIGHT_METRICS}
    needs |= {"ray_node_gpus_utilization": "gpu", "ray_node_gram_used": "gpu"}
    used = ours_in(panel.expr) | set(RAYS_OWN.findall(panel.expr))
    assert {panel.needs} == {needs.get(metric, "") for metric in used} or not used


def test_every_exported_metric_is_shown_or_alerted_on() -> None:
    shown = ours_in(" ".join([*(panel.expr for _, panel in every_panel()), *(alert.expr for alert in EVERY_ALERT)]))
    assert shown == {metric.in_prometheus for metric in ALL_METRICS}


def test_every_alert_says_what_to_do_and_has_a_planted_fault() -> None:
    tried = yaml.safe_load((FOLDER / "prometheus" / "alerts_test.yaml").read_text(encoding="utf-8"))
    planted = {case["alertname"] for test in tried["tests"] for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert planted == {alert.name for alert in EVERY_ALERT}
    assert all(alert.summary and alert.fix for alert in EVERY_ALERT)


@needs_promtool
def test_the_alert_rules_fire_on_planted_faults_and_not_before() -> None:
    assert "SUCCESS" in promtool("test", "rules", "prometheus/alerts_test.yaml")


@needs_promtool
@pytest.mark.parametrize("name", ["laptop.yaml", "aws.yaml"])
def test_prometheus_takes_the_scrape_configuration(name: str, tmp_path: Path) -> None:
    for file in (name, "alerts.yaml"):
        shutil.copyfile(FOLDER / "prometheus" / file, tmp_path / file)
    assert "SUCCESS" in promtool("check", "config", str(tmp_path / name))


@needs_promtool
def test_prometheus_takes_every_query(tmp_path: Path) -> None:
    queries = [filled(panel.expr) for _, panel in every_panel()]
    rules = [{"record": f"panel{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(file))
