"""Output: results to stdout, all messages to stderr."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from vsetune.config.spec.secrets import masked, shown_url
from vsetune.errors import UsageError

results = Console()
messages = Console(stderr=True)
_ENDLESS = re.compile(r"(\S{300})\S{200,}(\S{100})")
_WITHOUT_JOBS = "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false"
"""MLflow starts eight processes of 230 MB, for evaluations of language models, beside the two that show runs."""


def say(text: str) -> None:
    """One line for a person, unchanged: not wrapped, not coloured, with its brackets; only secrets become `***`."""
    messages.print(masked(text), soft_wrap=True, highlight=False, markup=False)


def complain(kind: str, text: str) -> None:
    """Prints each problem in its own line, which starts with `error` or `failed`; a very long word is shortened to its
    ends."""
    for line in _ENDLESS.sub(r"\1...\2", masked(text)).splitlines() or [""]:
        messages.print(Text.assemble((kind, "red"), " ", line), soft_wrap=True, highlight=False)


def counted(number: int, one: str, several: str) -> str:
    """`1 study`, `2 studies`."""
    return f"{number} {one if number == 1 else several}"


def mlflow_server(uri: str | None) -> str | None:
    """The command that shows a database in the MLflow UI, with the password left for the person to fill in.

    None where nothing is exported, a server answers already (http), or nothing could serve it.
    """
    if uri is None or "://" not in uri or uri.startswith(("http://", "https://")):
        return None
    shown = shown_url(uri)
    fill_in = "" if shown == uri else "  (with the password in place of ***)"
    return f"{_WITHOUT_JOBS} mlflow server --backend-store-uri {_quoted(shown)} --workers 1 --port 5000{fill_in}"


def _quoted(url: str) -> str:
    """Quoted for a shell that would interpret ? & and *."""
    return f"'{url}'" if set(url) & set("?&*' ") else url


def place_to_write(*names: str, **settings: Any) -> Any:
    """An option that names a file or folder to write."""
    return typer.Option(*names, callback=_on_this_machine, **settings)


def _on_this_machine(param: typer.CallbackParam, place: Path | None) -> Path | None:
    """UsageError for an address, which as a path would be in a folder called `s3:`."""
    if place is None or not "".join(place.parts[:1]).endswith(":"):
        return place
    address = shown_url(str(place).replace(":/", "://", 1))
    raise UsageError(f"{param.opts[0]}: got {address}, need a place on this machine; write it there, then copy it")


@contextmanager
def interruptible(advice: str) -> Iterator[None]:
    """Ctrl-C ends the command with exit code 130 and prints how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"interrupted; {advice}")
        raise typer.Exit(130) from None


def print_json(plain: Any) -> None:
    """Machine-readable results, one JSON document on stdout."""
    results.out(json.dumps(plain, indent=2, ensure_ascii=False), highlight=False)
