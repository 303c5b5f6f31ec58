"""Params, tags and descriptions of studies and attempts in MLflow, and links into its UI. Plain text, for people."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from vsetune.records.events import PLUGIN_TAG, WARM_START, AttemptRecord, AttemptStart, StudyRecord
from vsetune.records.mlflow_client import PIECE
from vsetune.storage.addresses import shown_url

VIEW_KEY = "vsetune"
"""Key of the charts that are set up for a study; see `mlflow_views.py`."""
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
        "environment": _json(start.environment), "protocol": _json(start.protocol),
    }
    found |= {f"{PLUGIN_TAG}{key}": sha256 for key, sha256 in start.resolved.get("plugins", {}).items()}
    found |= {key: start.environment[key] for key in (WARM_START,) if key in start.environment}
    return {name: text[:PIECE] for name, text in (found | source_tags(start)).items()}


def attempt_params(start: AttemptStart) -> dict[str, str]:
    """Parameters for comparison in a table: every hyperparameter, searched or fixed, and the attempt's cell, network,
    loss and seed.

    Left out as uninformative: fixed ones that are off (None, False, zero, empty), and mappings. All are in the artifact
    config.yaml.
    """
    belongs = {"cell": start.cell, "network": start.network, "loss": start.loss, "seed": start.seed}
    resolved = {
        f"{part}.{name}": value
        for part in ("network", "loss", "training") for name, value in start.resolved.get(part, {}).items()
        if name != "name" and value and not isinstance(value, Mapping)
    }
    return {key: str(value)[:PIECE] for key, value in {**belongs, **resolved, **start.configuration}.items()}


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


def attempt_note(record: AttemptRecord, experiment_id: str) -> str:
    """The description of an attempt that has ended (Markdown)."""
    start, best = record.start, record.summary.get("best_m_recall")
    at = record.summary.get("epochs_to_best")
    lines = [f"**{start.trial}**: {start.network} with {start.loss}, seed {start.seed}, {record.status}."]
    if best is not None:
        lines.append("" if at is None else f"- best M-Recall {best:.2f} % after {at:.2f} epochs (validation)")
    if record.error:
        lines.append(f"- {record.error}")
    lines += [
        f"- gallery of what it retrieves: `vsetune trial gallery {start.study}/{start.trial}`, then under "
        f"[artifacts]({artifact_link(experiment_id, record.attempt_id, '')})",
        f"- as a model: `vsetune trial model {start.study}/{start.trial}`",
    ]
    return "\n".join(line for line in lines if line)


def study_links(study: str, experiment_id: str, run_id: str, pages: Sequence[str]) -> str:
    """The end of a study's description: links to its charts, and to pages among its artifacts. pages: their names."""
    lines = [
        f"- leaderboard: `vsetune leaderboard show {study}`",
        f"- [charts]({charts_link(experiment_id)}): M-Recall of all runs, recalls and costs in groups",
    ]
    return with_links("\n".join(lines), experiment_id, run_id, sorted(pages)[:_MOST_LINKS])


def with_links(note: str, experiment_id: str, run_id: str, pages: Sequence[str]) -> str:
    """The description of a run with a link to each page among its artifacts, once. pages: with their folders."""
    links = [f"- [{name}]({artifact_link(experiment_id, run_id, name)})" for name in pages if name.endswith(_PAGES)]
    return "\n".join([*filter(None, [note]), *(link for link in links if link not in note)])


def experiment_links(experiment_id: str) -> str:
    """The second paragraph of an experiment's description: MLflow shows two lines, also in its view for language
    models."""
    return f"[Runs of this study]({runs_link(experiment_id)}), and [their charts]({charts_link(experiment_id)})."


def runs_link(experiment_id: str) -> str:
    """Link to the runs, in MLflow's UI, relative to any server."""
    return f"#/experiments/{experiment_id}/runs?{_query({})}"


def charts_link(experiment_id: str) -> str:
    """Link to the charts of the runs, in MLflow's UI, relative to any server. MLflow 3 shows an experiment in its view
    for language models unless the link names the other view; no tag of the experiment can set it."""
    return f"#/experiments/{experiment_id}/runs?{_query({'viewStateShareKey': VIEW_KEY, 'compareRunsMode': 'CHART'})}"


def run_link(experiment_id: str, run_id: str) -> str:
    """Link to a run, in MLflow's UI, relative to any server."""
    return f"#/experiments/{experiment_id}/runs/{run_id}?{_query({})}"


def artifact_link(experiment_id: str, run_id: str, path: str) -> str:
    """Link to an artifact or a folder of artifacts, in MLflow's UI, relative to any server."""
    place = f"artifacts/{path}" if path else "artifacts"
    return f"#/experiments/{experiment_id}/runs/{run_id}/{place}?{_query({})}"


def _query(given: Mapping[str, str]) -> str:
    return "&".join(f"{key}={value}" for key, value in {"workflowType": "machine_learning", **given}.items())


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
