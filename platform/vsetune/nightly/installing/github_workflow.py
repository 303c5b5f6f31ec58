"""A workflow of GitHub Actions: schedule and button, history in the cache, report in the summary, secrets by name."""

from __future__ import annotations

import json
import shlex
from datetime import datetime
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from vsetune.config.spec.paths import HOME_VARIABLE
from vsetune.errors import UsageError
from vsetune.nightly.installing.daily_time import in_winter_utc
from vsetune.nightly.installing.nightly_entry import MARK, NightlyEntry

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
