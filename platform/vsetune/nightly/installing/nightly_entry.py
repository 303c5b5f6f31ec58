"""The content common to all kinds of entries: sweep, time, program, variables. No secrets."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsetune.config.spec.paths import HOME_VARIABLE, NODE_FOLDER_VARIABLE, home, local_path, remote_home
from vsetune.config.spec.secrets import shown_url
from vsetune.errors import ConfigError, UsageError
from vsetune.jobs.job_package import PASSED_ON
from vsetune.nightly.installing.daily_time import DailyTime
from vsetune.nightly.nightly_spec import NightlySpec
from vsetune.object_storage.node_cache import FOLDER_VARIABLE, SIZE_VARIABLE

MARK = "written by `vsetune nightly install`"
"""Text in every file that vsetune writes, so that no other file is overwritten or removed."""

SECRETS_FILE = Path("~/.config/vsetune/nightly.env")
"""Lines NAME=value with secret passwords and addresses, written by the user and readable only by the user."""

_OF_MAIL = {f"VSETUNE_SMTP_{name}" for name in ("HOST", "PORT", "USER", "PASSWORD", "FROM")}
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class NightlyEntry:
    """name: of the sweep. file: absolute path of its nightly.yaml. time: of the start.

    command: words that run a night from `folder`. variables: of the environment, without secrets. secrets: names of the
    variables that contain secrets. log: file for its messages on this machine.
    """

    name: str
    file: Path
    time: DailyTime
    command: Sequence[str]
    folder: Path
    variables: Mapping[str, str]
    secrets: Sequence[str]
    log: Path

    @property
    def label(self) -> str:
        """Name for units and objects, which may not contain underscores or capitals."""
        return f"vsetune-nightly-{self.name.lower().replace('_', '-')}"

    @property
    def shell(self) -> str:
        """The command, quoted for a shell."""
        return shlex.join(self.command)


def nightly_entry(spec: NightlySpec, file: Path, time: DailyTime, home_given: str | None) -> NightlyEntry:
    """An entry with the interpreter, the package and the settings of this process. ConfigError lists every problem of
    the variables. UsageError for an unprintable character."""
    name, absolute = spec.nightly, file.absolute()
    place = _home(home_given)
    variables = {**_variables(), **_of_this_machine(), HOME_VARIABLE: place}
    if os.environ.get("PYTHONPATH"):
        variables["PYTHONPATH"] = os.pathsep.join(
            str(Path(each).absolute()) for each in os.environ["PYTHONPATH"].split(os.pathsep) if each
        )
    words = [sys.executable, "-m", "vsetune.cli.entry", "nightly", "run", str(absolute)]
    folder = home() if "://" in place else Path(place)
    for text in (*words, *variables.values()):
        if not text.isprintable():
            raise UsageError(f"{text!a}: has a character that no entry can hold; rename it")
    return NightlyEntry(
        name, absolute, time, words, absolute.parent, dict(sorted(variables.items())),
        _secrets(spec, [*_texts(spec.to_plain()), *variables.values()]), folder / "nightly" / name / "nightly.log",
    )


def _secrets(spec: NightlySpec, texts: Sequence[str]) -> list[str]:
    """Names of the variables that the report needs, and of those that appear as `${NAME}` in these texts."""
    named = {name for text in texts for name in _VARIABLE.findall(text)}
    named |= {spec.report.webhook} if spec.report.webhook else set()
    return sorted(named | _OF_MAIL if spec.report.mail_to else named)


def _texts(plain: Any) -> Iterator[str]:
    if isinstance(plain, str):
        yield plain
    elif isinstance(plain, Mapping | list):
        for each in plain.values() if isinstance(plain, Mapping) else plain:
            yield from _texts(each)


def _home(given: str | None) -> str:
    """The absolute home written into the entry: --home, or that of this process."""
    if given is None:
        return remote_home() or str(home())
    if given.startswith("s3://"):
        if shown_url(given) != given:
            raise ConfigError(
                f"--home: got {shown_url(given)}, keys do not belong in the address; need s3://bucket/prefix"
            )
        return given.rstrip("/")
    try:
        return str(Path(local_path(given)).absolute())
    except ValueError as error:
        raise ConfigError(f"--home: {error}") from error


def _of_this_machine() -> dict[str, str]:
    """Variables for working folders, made absolute, and the cache size. ConfigError for an invalid folder."""
    given = {name: os.environ[name] for name in (SIZE_VARIABLE,) if os.environ.get(name)}
    for name in (NODE_FOLDER_VARIABLE, FOLDER_VARIABLE):
        try:
            given |= {name: str(Path(local_path(folder)).absolute())} if (folder := os.environ.get(name)) else {}
        except ValueError as error:
            raise ConfigError(f"{name}: {error}") from error
    return given


def _variables() -> dict[str, str]:
    """Variables of this shell for the places of records and data. ConfigError for values that contain a password."""
    given = {name: os.environ[name] for name in PASSED_ON if os.environ.get(name) and name != HOME_VARIABLE}
    problems = [
        f"{name}: holds a password, and the entry would show it; write ${{VARIABLE}} in its place, and set that "
        f"variable in {SECRETS_FILE}"
        for name, value in given.items() if shown_url(value) != value
    ]
    if problems:
        raise ConfigError(problems)
    return given
