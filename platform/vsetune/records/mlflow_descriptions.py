"""Params, tags and descriptions of studies and attempts in MLflow, links into its UI, and the charts of its runs.

MLflow stores a shared view of an experiment as a tag `mlflow.sharedViewState.KEY`, which a link names. No metric is
renamed for the groups: the view assigns each chart to its group. Unlisted metrics go to MLflow's own groups, so an
older or newer set of metrics is shown in full.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from vsetune.home.addresses import shown_url
from vsetune.records.events import PLUGIN_TAG, AttemptStart, Ended, StudyRecord
from vsetune.records.mlflow_client import KIND, NOTE, PIECE

if TYPE_CHECKING:
    from mlflow import MlflowClient

VIEW_KEY = "vsetune"
"""Key of the charts that are set up for a study."""
CONFIGURATION = "configuration"
"""Tag of a run: the settings that the search chose, in words."""
_CHANGES = "+changes"
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_PAGES = (".html", ".md", ".csv", ".tex")
_MOST_LINKS = 20


def command_tags(study: str) -> dict[str, str]:
    """Tags for MLflow's column Source: the command."""
    return {"mlflow.source.name": f"vsetune study run {study}", "mlflow.source.type": "LOCAL"}


def source_tags(start: AttemptStart) -> dict[str, str]:
    """Tags for MLflow's columns Source and Version: the command, and the commit of the code if known."""
    tags = command_tags(start.study)
    revision = start.environment.get("git_revision", "")
    commit = revision.removesuffix(_CHANGES)
    if _COMMIT.fullmatch(commit):
        tags["mlflow.source.git.commit"] = commit
        tags["mlflow.source.git.dirty"] = str(revision.endswith(_CHANGES)).lower()
    return tags


def attempt_tags(start: AttemptStart) -> dict[str, str]:
    """Tags by which people search and group runs, and those of MLflow's own columns."""
    found = {
        "trial": start.trial, "attempt": str(start.number), "cell": start.cell, "phase": start.phase,
        "network": start.network, "loss": start.loss, "seed": str(start.seed),
        CONFIGURATION: configuration_words(start.configuration),
        "environment": _json(start.environment), "protocol": _json(start.protocol),
    }
    found |= {f"{PLUGIN_TAG}{key}": sha256 for key, sha256 in start.resolved.get("plugins", {}).items()}
    return {name: text[:PIECE] for name, text in (found | source_tags(start)).items()}


def configuration_words(configuration: Mapping[str, Any]) -> str:
    """`loss.margin = 0.2, training.learning_rate = 0.001`: what the search chose; `as given` where nothing varies."""
    shown = (f"{key} = {value:.4g}" if isinstance(value, float) else f"{key} = {value}"
             for key, value in configuration.items())
    return ", ".join(shown) or "as given"


def attempt_params(start: AttemptStart) -> dict[str, str]:
    """Parameters for comparison in a table: the attempt's cell, network, loss and seed, those that the search chose,
    then every fixed one.

    Left out as uninformative: fixed ones that are off (None, False, zero, empty), and mappings. All are in the artifact
    config.yaml.
    """
    belongs = {"cell": start.cell, "network": start.network, "loss": start.loss, "seed": start.seed}
    resolved = {
        f"{part}.{name}": value
        for part in ("network", "loss", "training") for name, value in start.resolved.get(part, {}).items()
        if name != "name" and value and not isinstance(value, Mapping)
    }
    varying = {**belongs, **start.configuration}
    return {key: str(value)[:PIECE] for key, value in {**varying, **resolved, **varying}.items()}


def data_set_facts(start: AttemptStart) -> dict[str, str] | None:
    """Name, digest, place and split of an attempt's training data, for MLflow's column Dataset; None if unknown."""
    data = start.resolved.get("data") or {}
    path, digest = data.get("path"), start.protocol.get("data_fingerprint")
    if not path or not digest:
        return None
    place = shown_url(str(path))
    return {
        "name": PurePosixPath(place.rstrip("/")).name or place, "digest": str(digest)[:36], "place": place,
        "split": str(data.get("train_split", "train")),
    }


def attempt_note(event: Ended, tags: Mapping[str, str], experiment_id: str, run_id: str) -> str:
    """The description of an attempt that has ended (Markdown). tags: `attempt_tags`, as its run has them."""
    name, best, at = event.attempt.rpartition("/")[0], *map(event.summary.get, ("best_m_recall", "epochs_to_best"))
    lines = [f"**{tags.get('trial')}**: {tags.get('network')} with {tags.get('loss')}, seed {tags.get('seed')}, "
             f"{event.status}."]
    if best is not None and at is not None:
        lines.append(f"- best M-Recall {best:.2f} % after {at:.2f} epochs (validation)")
    if event.error:
        lines.append(f"- {event.error}")
    return "\n".join([
        *lines,
        f"- gallery of what it retrieves: `vsetune trial gallery {name}`, then under "
        f"[artifacts]({_link(experiment_id, run_id, 'artifacts')})",
        f"- as a model: `vsetune trial model {name}`",
    ])


def study_links(
    study: str, experiment_id: str, run_id: str, pages: Sequence[str], *, networks: Sequence[str]
) -> str:
    """The end of a study's description: links to its charts, and to pages among its artifacts. pages: their names.
    networks: those with a view of mean curves."""
    return "\n".join([
        f"- leaderboard: `vsetune leaderboard show {study}`",
        f"- [charts]({charts_link(experiment_id)}): M-Recall of all runs, recalls and costs in groups",
        *(f"- [{network}]({charts_link(experiment_id, network)}): the mean curve of every loss over its seeds"
          for network in networks),
        *(f"- [{page}]({_link(experiment_id, run_id, f'artifacts/{page}')})"
          for page in sorted(pages)[:_MOST_LINKS] if page.endswith(_PAGES)),
    ])


def charts_link(experiment_id: str, network: str = "") -> str:
    """Link to the charts of the runs, in MLflow's UI, relative to any server. network: of its mean curves alone."""
    return f"{_link(experiment_id)}&viewStateShareKey={view_key(network)}&compareRunsMode=CHART"


def view_key(network: str) -> str:
    """Key of the charts of all runs, or of the mean curves of a network."""
    return f"{VIEW_KEY}-{network}" if network else VIEW_KEY


def run_link(experiment_id: str, run_id: str) -> str:
    """Link to a run, in MLflow's UI, relative to any server."""
    return _link(experiment_id, run_id)


def _link(experiment_id: str, *parts: str) -> str:
    """MLflow 3 shows an experiment in its view for language models unless the link names the other view; no tag of the
    experiment can set it."""
    return f"#/experiments/{'/'.join([experiment_id, 'runs', *parts])}?workflowType=machine_learning"


def study_note(record: StudyRecord) -> str:
    """The description shown on top of the study in the MLflow UI (Markdown). Its first line is plain text: MLflow's
    list of experiments shows only that line, unrendered."""
    networks, losses = (_names(record.config.get(kind)) for kind in ("networks", "losses"))
    first, _, more = str(record.config.get("description") or "").strip().partition("\n")
    lines = [first.strip("#* ") or f"{networks} with {losses}", ""]
    lines += [f"**{record.name}** compares losses by their M-Recall over epochs.", ""]
    if more.strip():
        lines += [more.strip(), ""]
    lines += [f"- networks: {networks}", f"- losses: {losses}"]
    if baseline := record.config.get("baseline"):
        lines.append(f"- baseline: {baseline}")
    lines += [
        f"- fingerprint: `{record.fingerprint}`", "",
        "Each nested run is one attempt at a trial; compare `m_recall` over steps. The resolved study file, the log "
        "and, at the end, the leaderboard are among the artifacts.",
    ]
    return "\n".join(lines)[:PIECE]


def _names(entries: Any) -> str:
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        return "see study.yaml"
    return ", ".join(map(_name, entries))


def _name(entry: Any) -> str:
    """The name of a network or a loss as cells name it; the name of a sum is made of its parts' names."""
    if not isinstance(entry, Mapping):
        return str(entry)
    return str(entry.get("label") or entry.get("name") or "_".join(map(_name, entry.get("loss") or ["none"])))


def _json(plain: Mapping[str, Any]) -> str:
    return json.dumps(dict(plain), separators=(",", ":"), default=str)


VIEW_TAG = f"mlflow.sharedViewState.{VIEW_KEY}"
MEAN = "mean"
"""Kind of a run that has the mean curve of a configuration over its seeds."""
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
    links = f"[Runs of this study]({_link(experiment_id)}), and [their charts]({charts_link(experiment_id)})."
    described = "\n\n".join([first, links, more])  # MLflow's view for language models shows two lines
    client.set_experiment_tag(experiment_id, NOTE, described[:PIECE])


def keep_mean_view(client: MlflowClient, experiment_id: str, network: str, *, series: str) -> None:
    """Set up the charts of the mean curves of a network."""
    chosen = f"tags.`{KIND}` = '{MEAN}' AND tags.network = '{network}'"
    view = charts_view(series) | {"searchFilter": chosen, "runsHiddenMode": "SHOWALL"}
    tag = f"mlflow.sharedViewState.{view_key(network)}"
    client.set_experiment_tag(experiment_id, tag, json.dumps(view, separators=(",", ":")))


def charts_view(series: str) -> dict[str, Any]:
    """The state of MLflow's page of runs: groups, and the charts in each, over epochs where the runs have them. series:
    as in `keep_view`."""
    axis = {"xAxisKey": "metric", "selectedXAxisMetricKey": "epoch"} if series == "all" else {
        "xAxisKey": "step", "selectedXAxisMetricKey": "",
    }
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
        "globalLineChartConfig": {**axis, "lineSmoothness": 0},
        "orderByKey": "metrics.`best_m_recall`", "orderByAsc": False, "runsHiddenMode": "FIRST_20_RUNS",
        "selectedColumns": [
            "params.`network`", "params.`loss`", f"tags.`{CONFIGURATION}`", "params.`seed`", "tags.`status`",
            "metrics.`best_m_recall`", "metrics.`epochs_to_best`",
        ],
    }


def keep_data_sets(client: MlflowClient, run_id: str, start: AttemptStart) -> None:
    """Log the data set of an attempt as an input of its run; repeating it changes nothing."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

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
