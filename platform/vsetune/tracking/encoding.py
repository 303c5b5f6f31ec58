"""How records are written into a store that knows only short strings (MLflow tags and params).

What must be read back exactly goes into tags named `vsetune.*`, cut into pieces when it is long: what an attempt
started with and its points compressed, everything else as JSON. What is for people (params, plain tags) is written
beside it and never read back. What earlier versions wrote is read too: plain JSON, curves in tags `vsetune.curve`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from operator import itemgetter
from typing import Any

import yaml

from vsetune.config.spec.secrets import masked
from vsetune.files.hashes import sha256_hex
from vsetune.tracking.pieces import PIECE as PIECE
from vsetune.tracking.pieces import from_pieces
from vsetune.tracking.pieces import in_pieces as in_pieces
from vsetune.tracking.point_blocks import CurvePoint as CurvePoint
from vsetune.tracking.point_blocks import block_texts, curve_of_block, packed, points_of_block, unpacked_text
from vsetune.tracking.records import (
    PLUGIN_TAG,
    WARM_START,
    AttemptRecord,
    AttemptStart,
    AttemptStatus,
    StudyRecord,
    ValidationPoint,
)
from vsetune.tracking.run_descriptions import source_tags

KIND = "vsetune.kind"
KEY = "vsetune.key"
RECORD = "vsetune.record"
CURVE = "vsetune.curve"
"""Of attempts that earlier versions recorded: fields of CurvePoints as JSON."""
SUMMARY = "vsetune.summary"
SEEN = "vsetune.seen"
FINGERPRINT = "fingerprint"
STATUS = "status"
ERROR = "error"
NOTE = "mlflow.note.content"  # the description in the UI

_ENCODER = json.JSONEncoder(separators=(",", ":"), default=str)


def to_json(plain: Any) -> str:
    return _ENCODER.encode(plain)


def to_yaml(plain: Mapping[str, Any]) -> str:
    return yaml.safe_dump(json.loads(to_json(dict(plain))), sort_keys=False, allow_unicode=True)


def one_line(error: Exception) -> str:
    """The gist of an exception whose text may run over many lines, without the passwords of the URLs in it."""
    text = masked(" ".join(str(error).split())) or type(error).__name__
    return text if len(text) <= 200 else text[:200] + "..."


def seen_tag(moment: float) -> dict[str, str]:
    """A sign of life at `moment`, seconds since 1970."""
    return {SEEN: str(moment)}


def attempt_key(start: AttemptStart) -> str:
    """A short name for (trial, number) without characters that a search filter would have to quote."""
    return sha256_hex(to_json([start.study, start.trial, start.number]).encode())[:24]


def attempt_tags(start: AttemptStart) -> dict[str, str]:
    """All tags of a new attempt."""
    for_people = {
        "trial": start.trial, "attempt": str(start.number), "cell": start.cell, "phase": start.phase,
        "network": start.network, "loss": start.loss, "seed": str(start.seed),
        "environment": to_json(dict(start.environment))[:PIECE], "protocol": to_json(dict(start.protocol))[:PIECE],
    }
    for_people |= {f"{PLUGIN_TAG}{key}": sha256 for key, sha256 in start.resolved.get("plugins", {}).items()}
    for_people |= {key: start.environment[key][:PIECE] for key in (WARM_START,) if key in start.environment}
    for_people |= source_tags(start)
    exact = {KIND: "attempt", KEY: attempt_key(start), STATUS: "running"}
    return for_people | exact | in_pieces(RECORD, packed(asdict(start)))


def attempt_params(start: AttemptStart) -> dict[str, str]:
    """What people compare in a table: every hyperparameter, searched or fixed, and what the attempt belongs to.

    Of the fixed ones those that are off (None, False, zero, empty) are left out, and mappings: columns that tell nobody
    anything. All stand in the artifact config.yaml.
    """
    belongs = {"cell": start.cell, "network": start.network, "loss": start.loss, "seed": start.seed}
    resolved = {
        f"{part}.{name}": value
        for part in ("network", "loss", "training") for name, value in start.resolved.get(part, {}).items()
        if name != "name" and value and not isinstance(value, Mapping)
    }
    return {key: str(value)[:PIECE] for key, value in {**belongs, **resolved, **start.configuration}.items()}


def point_metrics(point: ValidationPoint) -> dict[str, float]:
    """All numbers of one validation, by name."""
    own = {
        "m_recall": point.m_recall, "epoch": point.epoch, "pairs_seen": float(point.pairs_seen),
        "train_seconds": point.train_seconds,
    }
    return {**point.metrics, **own}


def curve_from_tags(tags: Mapping[str, str]) -> list[CurvePoint]:
    """In the order of the training."""
    return [CurvePoint(*point) for point in _plain_curve(tags)]


def points_from_tags(tags: Mapping[str, str]) -> list[ValidationPoint]:
    """In the order of the training; of those that an earlier version recorded tags have the numbers of CurvePoints."""
    points = {point.step: point for text in block_texts(tags) for point in points_of_block(text)}
    for known in curve_from_tags(tags):
        device = {} if known.device_seconds is None else {"device_seconds": known.device_seconds}
        older = ValidationPoint(known.step, known.epoch, 0, known.m_recall, known.train_seconds, device)
        points.setdefault(known.step, older)
    return [points[step] for step in sorted(points)]


def _plain_curve(tags: Mapping[str, str]) -> list[list[Any]]:
    """Fields of CurvePoints; of ten thousand curves the objects would take longer than the text."""
    curve: list[list[Any]] = json.loads(from_pieces(CURVE, tags) or "[]")
    for text in block_texts(tags):
        curve += curve_of_block(text)
    curve.sort(key=itemgetter(0))
    return curve


def record_text(tags: Mapping[str, str]) -> str:
    """What a study or an attempt was recorded with, as JSON. ValueError where it cannot be unpacked."""
    text = from_pieces(RECORD, tags) or "{}"
    return text if text.startswith("{") else unpacked_text(text)


def attempt_from_tags(attempt_id: str, tags: Mapping[str, str]) -> AttemptRecord:
    """The attempt that `attempt_tags`, blocks of points and a summary tag describe."""
    return Decoding().attempt(attempt_id, tags)


class Decoding:
    """Makes attempts of tags. What several of them have in common, nearly all of their settings, is kept once."""

    def __init__(self) -> None:
        self._shared: dict[str, Any] = {}

    def attempt(self, attempt_id: str, tags: Mapping[str, str]) -> AttemptRecord:
        """As `attempt_from_tags`."""
        curve = _plain_curve(tags)
        summary = CurvePoint(*curve[-1]).seconds() if curve else {}
        summary |= json.loads(from_pieces(SUMMARY, tags) or "{}")
        status: AttemptStatus = tags[STATUS]  # type: ignore[assignment]
        points = tuple((epoch, m_recall) for _, epoch, m_recall, *_ in curve)
        start = self._start(json.loads(record_text(tags)))
        return AttemptRecord(attempt_id, start, status, points, summary, tags.get(ERROR) or None)

    def _start(self, plain: dict[str, Any]) -> AttemptStart:
        resolved = {self._share(name): self._share(part) for name, part in plain.get("resolved", {}).items()}
        whole = ("environment", "protocol", "study", "cell", "network", "loss", "phase")
        shared = {name: self._share(plain[name]) for name in whole if name in plain}
        return AttemptStart(**{**plain, **shared, "resolved": resolved})

    def _share(self, part: Any) -> Any:
        """The same object for all that are equal. Nobody changes what a store has read."""
        return self._shared.setdefault(repr(part), part)


def study_tags(record: StudyRecord) -> dict[str, str]:
    """All tags of the run that stands for a study."""
    exact = {KIND: "study", STATUS: "running", FINGERPRINT: record.fingerprint}
    return dict(record.tags) | exact | in_pieces(RECORD, to_json(asdict(record)))


def experiment_tags(record: StudyRecord) -> dict[str, str]:
    """All tags of a study's experiment."""
    return {
        KIND: "study", FINGERPRINT: record.fingerprint, NOTE: study_note(record),
        "mlflow.experimentKind": "custom_model_development",  # else the UI offers its views for language models
    }


def study_from_tags(tags: Mapping[str, str]) -> StudyRecord:
    return StudyRecord(**json.loads(from_pieces(RECORD, tags) or "{}"))


def study_note(record: StudyRecord) -> str:
    """The description shown on top of the study in the MLflow UI (Markdown). Its first line is plain: MLflow's list of
    experiments shows no more of it, and as it is written."""
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
        "Each nested run is one attempt at a trial; compare `m_recall` over steps. `vsetune trial curves STUDY/TRIAL` "
        "prints all other numbers of its validations; `tracking: {series: all}` in a study file draws them here, too. "
        "The resolved study file and, at the end, the leaderboard are among the artifacts.",
    ]
    return "\n".join(lines)[:PIECE]


def closing_note(tags: Mapping[str, str], statuses: Sequence[str]) -> str:
    """The description of an ended study: the one above, and how its attempts ended. tags: those of `study_tags`."""
    ended = ", ".join(f"{count} {status}" for status, count in sorted(Counter(statuses).items())) or "none"
    return f"{study_note(study_from_tags(tags))}\n\nAttempts: {ended}."[:PIECE]


def _names(entries: Any) -> str:
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        return "see study.yaml"
    return ", ".join(map(_name, entries))


def _name(entry: Any) -> str:
    """Of a network or a loss as cells have it; that of a sum is made of its parts' names."""
    if not isinstance(entry, Mapping):
        return str(entry)
    return str(entry.get("label") or entry.get("name") or "_".join(map(_name, entry.get("loss") or ["none"])))
