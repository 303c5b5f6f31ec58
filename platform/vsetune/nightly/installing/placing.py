"""Installs an entry of this machine or writes a manifest for another; files of other programs are left alone."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from vsetune.errors import StorageError, UsageError, VsetuneError
from vsetune.nightly.installing.local_entries import (
    Crontab,
    cron_block,
    start_timer,
    stop_timer,
    systemd_units,
    unit_folder,
    with_block,
)
from vsetune.nightly.installing.nightly_entry import MARK, SECRETS_FILE, NightlyEntry, in_winter_utc, summer_time_notes
from vsetune.storage.paths import HOME_VARIABLE
from vsetune.storage.whole_files import make_folder, write_text


class EntryKind(StrEnum):
    """The scheduler that starts the nights."""

    CRON = "cron"
    SYSTEMD = "systemd"
    GITHUB = "github"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True)
class Entry:
    """An entry and its place. output: folder for its files. None is the place where the scheduler reads it: the user's
    crontab, systemd's folder or .github/workflows; for Kubernetes the current folder. with_raycronjob: for Kubernetes.
    """

    kind: EntryKind
    content: NightlyEntry
    output: Path | None = None
    with_raycronjob: bool = True


def entry_texts(entry: Entry) -> dict[str, str]:
    """The texts to write, by file name; for cron the lines, under the name `crontab`. UsageError."""
    now, content = datetime.now(UTC), entry.content
    if entry.kind is EntryKind.CRON:
        return {"crontab": cron_block(content, now=now)}
    if entry.kind is EntryKind.SYSTEMD:
        return systemd_units(content)
    root = repository_root(content.file)
    if entry.kind is EntryKind.GITHUB:
        return {f"{content.label}.yml": github_workflow(content, root, now=now)}
    path, name = content.file.resolve().relative_to(root.resolve()).as_posix(), f"{content.label}.yaml"
    text = kubernetes_schedule(
        content, path, ray=metadata.version("ray"), with_raycronjob=entry.with_raycronjob,
        output=str(entry.output / name if entry.output else name),
    )
    return {name: text}


def install(entry: Entry) -> list[str]:
    """Write an entry and start its timer; returns lines about the steps done and the steps left to the user.

    UsageError: the entry is not possible, or a file that vsetune did not write is in the way. VsetuneError: the system
    refuses.
    """
    texts = entry_texts(entry)
    if entry.kind is EntryKind.CRON and entry.output is None:
        make_folder(entry.content.log.parent)
        table = Crontab()
        table.write(with_block(table.read(), entry.content.name, texts["crontab"]))
        told = [f"crontab: {entry.content.name} runs at {entry.content.time.text}, messages go to {entry.content.log}"]
    else:
        folder = _folder(entry)
        for name in texts:
            _require_ours(folder / name)
        for name, text in texts.items():
            write_text(folder / name, text)
        told = [f"wrote {folder / name}" for name in texts] + _next(entry, folder)
    if entry.kind is EntryKind.SYSTEMD and entry.output is None:
        start_timer(entry.content.label)
        told.append("it runs while you are logged in; to run it always: loginctl enable-linger")
    return told + _about_secrets(entry) + summer_time_notes(entry.content.time, start=datetime.now(UTC))


def remove(entry: Entry) -> list[str]:
    """Remove an entry; returns lines about the steps done. UsageError when vsetune did not write a file of it.
    VsetuneError when systemd refuses to stop the timer; its files are then removed."""
    name = entry.content.name
    if entry.kind is EntryKind.CRON and entry.output is None:
        table = Crontab()
        before = table.read()
        after = with_block(before, name, None)
        if after == before:
            return [f"crontab: has no entry of {name}; nothing to remove"]
        table.write(after)
        return [f"crontab: {name} is removed"]
    folder = _folder(entry)
    there = [folder / file for file in _file_names(entry) if (folder / file).exists()]
    if not there:
        return [f"{folder}: has no entry of {name}; nothing to remove"]
    for file in there:
        _require_ours(file)
    refused: VsetuneError | None = None
    if entry.kind is EntryKind.SYSTEMD and entry.output is None:
        try:
            stop_timer(entry.content.label)
        except VsetuneError as error:
            refused = error
    for file in there:
        _unlink(file)
    if refused is not None:
        raise VsetuneError(f"{refused}; its files are removed") from refused
    told = [f"removed {file}" for file in there]
    if entry.kind is EntryKind.KUBERNETES:
        kind = "raycronjob" if entry.with_raycronjob else "cronjob"
        told.append(f"on the cluster: kubectl delete {kind} {entry.content.label}")
    return told


def _file_names(entry: Entry) -> Sequence[str]:
    label = entry.content.label
    names: Mapping[EntryKind, Sequence[str]] = {
        EntryKind.CRON: ["crontab"], EntryKind.SYSTEMD: [f"{label}.service", f"{label}.timer"],
        EntryKind.GITHUB: [f"{label}.yml"], EntryKind.KUBERNETES: [f"{label}.yaml"],
    }
    return names[entry.kind]


def _folder(entry: Entry) -> Path:
    if entry.output is not None:
        return entry.output
    if entry.kind is EntryKind.SYSTEMD:
        return unit_folder()
    if entry.kind is EntryKind.GITHUB:
        return repository_root(entry.content.file) / ".github" / "workflows"
    return Path.cwd()


def _require_ours(file: Path) -> None:
    """UsageError when the file exists and vsetune did not write it."""
    try:
        ours = not file.exists() or MARK in file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise StorageError(f"{file}: cannot be read ({error.strerror}); name another folder with --output") from error
    if not ours:
        raise UsageError(f"{file}: is there and was not {MARK}; move it away, or name another folder with --output")


def _unlink(file: Path) -> None:
    try:
        file.unlink()
    except OSError as error:
        reason = f"cannot be removed ({error.strerror}); fix the permissions of its folder"
        raise StorageError(f"{file}: {reason}") from error


def _next(entry: Entry, folder: Path) -> list[str]:
    """Lines on the steps left to the user."""
    label = entry.content.label
    if entry.kind is EntryKind.GITHUB:
        names = ", ".join(entry.content.secrets)
        secrets = f"; give the repository the secrets {names}" if names else ""
        return [f"commit and push it; it can also be started by hand on GitHub, under Actions{secrets}"]
    if entry.kind is EntryKind.KUBERNETES:
        return [f"replace REGISTRY in it, then: kubectl apply -f {folder / f'{label}.yaml'}"]
    if entry.kind is EntryKind.SYSTEMD and entry.output is not None:
        return [f"copy them to {unit_folder()}, then: systemctl --user enable --now {label}.timer"]
    return []


def _about_secrets(entry: Entry) -> list[str]:
    names = entry.content.secrets
    if entry.kind not in (EntryKind.CRON, EntryKind.SYSTEMD) or not names:
        return []
    return [f"secrets: write {', '.join(f'{name}=...' for name in names)} into {SECRETS_FILE}, and chmod 600 it"]


IMAGE = "REGISTRY/vsetune:ray-{ray}"
CHECKOUT = PurePosixPath("/home/ray/vsetune")
"""Path of the repository in the image of jobs/kuberay/Dockerfile."""

_CLUSTER, _SERVICE = "vsetune", "http://vsetune-head-svc:8265"
_START_WITHIN_S = 4 * 3600
_LONGEST_NIGHT_S = 20 * 3600

_HEAD = """\
# {mark}: one night of {name}, every day at {text}.
# Replace REGISTRY, then: kubectl apply -f {output}
# Runs on the cluster of jobs/kuberay/ray_cluster.yaml, which keeps the history under VSETUNE_HOME=s3://... as
# settings.yaml says.
{secrets}{kind}"""
_OF_RAYCRONJOB = """\
# RayCronJob is alpha in KubeRay 1.6 and 1.7: its operator needs --feature-gates=RayCronJob=true{zone_note}.
# Where that gate is off nothing happens and nothing is said; then write this again with --without-raycronjob.
"""
_ZONE_NOTE = ", and 1.7 for timeZone"
_OF_CRONJOB = """\
# A CronJob of Kubernetes itself, which submits the night to the cluster: for clusters without KubeRay's RayCronJob.
"""
_SECRETS = """\
# What the night sends its report with is read on the head, by reference: kubectl create secret generic vsetune-nightly
# --from-env-file=..., and under the ray-head container of ray_cluster.yaml, beside PG_PASSWORD:
{lines}
"""


def kubernetes_schedule(entry: NightlyEntry, path: str, *, ray: str, with_raycronjob: bool, output: str) -> str:
    """The manifest as text. path: of the sweep's file below the repository. ray: version of the image."""
    image = IMAGE.format(ray=ray)
    zone = "Etc/UTC" if entry.time.is_utc or entry.time.zone is None else entry.time.zone
    run = f"cd {CHECKOUT} && exec python jobs/nightly.py {shlex.quote(path)}"
    if with_raycronjob:
        manifest = _raycronjob(entry, run, image, None if entry.time.is_utc else zone)
        kind = _OF_RAYCRONJOB.format(zone_note="" if entry.time.is_utc else _ZONE_NOTE)
    else:
        manifest, kind = _cronjob(entry, run, image, zone), _OF_CRONJOB
    head = _HEAD.format(
        mark=MARK, name=entry.name, text=entry.time.text, output=output, secrets=_secrets(entry), kind=kind
    )
    return head + yaml.safe_dump(manifest, sort_keys=False, width=120)


def _raycronjob(entry: NightlyEntry, run: str, image: str, zone: str | None) -> dict[str, Any]:
    spec: dict[str, Any] = {"schedule": entry.time.cron()}
    if zone is not None:  # without timeZone the operator's own clock counts, which is UTC in its container
        spec["timeZone"] = zone
    spec["jobTemplate"] = {
        "clusterSelector": {"ray.io/cluster": _CLUSTER},
        "entrypoint": f"sh -c {shlex.quote(run)}",
        "submissionMode": "K8sJobMode",
        "submitterConfig": {"backoffLimit": 0},  # a regression is exit code 1, which needs no retry
        "submitterPodTemplate": _pod(image, None),
    }
    return {"apiVersion": "ray.io/v1", "kind": "RayCronJob", "metadata": {"name": entry.label}, "spec": spec}


def _cronjob(entry: NightlyEntry, run: str, image: str, zone: str) -> dict[str, Any]:
    submit = ["ray", "job", "submit", "--address", _SERVICE, "--", "sh", "-c", run]
    job = {
        "backoffLimit": 0, "activeDeadlineSeconds": _LONGEST_NIGHT_S, "ttlSecondsAfterFinished": 7 * 86400,
        "template": _pod(image, submit),
    }
    spec = {
        "schedule": entry.time.cron(), "timeZone": zone, "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": _START_WITHIN_S, "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 7,
        "jobTemplate": {"spec": job},
    }
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": entry.label}, "spec": spec}


def _pod(image: str, command: list[str] | None) -> dict[str, Any]:
    """The submitting pod, with minimal rights. command: None is KubeRay's own."""
    container: dict[str, Any] = {"name": "submitter", "image": image}
    if command is not None:
        container["command"] = command
    container |= {
        "resources": {"requests": {"cpu": "200m", "memory": "512Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "env": [{"name": "RAY_AUTH_MODE", "value": "token"}, _by_reference("RAY_AUTH_TOKEN", "vsetune", "auth_token")],
    }
    return {
        "metadata": {"labels": {"app.kubernetes.io/part-of": "vsetune"}},  # lets it through the network policy
        "spec": {
            "restartPolicy": "Never", "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
        },
    }


def _by_reference(name: str, secret: str, key: str) -> Mapping[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _secrets(entry: NightlyEntry) -> str:
    if not entry.secrets:
        return ""
    lines = yaml.safe_dump([_by_reference(name, "vsetune-nightly", name) for name in entry.secrets], sort_keys=False)
    return _SECRETS.format(lines="\n".join(f"#   {line}" for line in lines.rstrip().splitlines()))


_LEFT_HERE = {"PYTHONPATH", HOME_VARIABLE, "VSETUNE_LOG"}
"""Variables of this machine that do not apply to the runner; the history of a runner is in its cache."""


def github_workflow(entry: NightlyEntry, root: Path, *, now: datetime) -> str:
    """The text of a workflow file. root: of the repository, which must contain the sweep's file.

    UsageError for a file outside the repository, which the runner would not have.
    """
    file = entry.file.resolve()
    if not file.is_relative_to(root.resolve()):
        raise UsageError(f"{entry.file}: is not in the repository {root}, where a workflow looks for it; move it there")
    utc, moves = in_winter_utc(entry.time, start=now)
    environment = Environment(
        loader=PackageLoader("vsetune.nightly.installing", "templates"), autoescape=False, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )
    environment.filters["tojson"] = json.dumps
    variables = {
        name: value for name, value in entry.variables.items()
        if name not in _LEFT_HERE and "://" in value and not value.startswith(("sqlite:", "file:"))
    }
    return environment.get_template("workflow.yaml.j2").render(
        mark=MARK, name=entry.name, label=entry.label, text=entry.time.text, zone=entry.time.zone or "this machine",
        moves=moves, cron=utc.cron(), variables=variables, secrets=entry.secrets,
        run=f"vsetune nightly run {shlex.quote(file.relative_to(root.resolve()).as_posix())}",
    )


def repository_root(file: Path) -> Path:
    """The top folder of the file's repository. UsageError outside of any repository."""
    for folder in file.absolute().parents:
        if (folder / ".git").exists():
            return folder
    raise UsageError(f"{file}: stands in no git repository; a workflow needs one, or name the place with --output")
