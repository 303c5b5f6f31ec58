"""`vsetune losses` and `vsetune networks`: `check` and `new`, for components of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Column, Table
from rich.text import Text

from vsetune.cli.output import place_to_write, print_json, results, say
from vsetune.config.components.catalogue import name_of
from vsetune.config.plugin_loading import load_installed
from vsetune.quality.checks import Check, Finding, Result
from vsetune.quality.subjects import loss_at, network_at, write_draft

LOSS_EXAMPLE = "Example: vsetune losses check my_loss"
NETWORK_EXAMPLE = "Example: vsetune networks check my_network"

_COLOURS = {Result.HOLDS: "green", Result.FAILS: "red", Result.NOT_APPLICABLE: "dim"}

Component = Annotated[
    str,
    typer.Argument(
        metavar="PATH_OR_NAME", help="folder of your own, or name as in a study file", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", metavar="", help="the same as JSON")]


def check_loss(component: Component, as_json: Json = False) -> None:
    """Check what every loss must hold: gradients, NaN, small batches, extremes, resume; and time a step.

    Exit code 1 if something does not hold, 2 if there is no such loss.
    """
    from vsetune.quality.loss_batches import LossSubject
    from vsetune.quality.loss_checks import (
        LOSS_CHECKS,  # brings torch, which other commands do without
        step_times,
    )

    load_installed()
    spec = loss_at(component)
    findings = _run(LOSS_CHECKS, LossSubject(spec))
    try:
        milliseconds, ratio = step_times(spec())
    except Exception:  # foreign code; what is wrong with it is among the findings
        timing: dict[str, float] = {}
    else:
        timing = {"milliseconds": round(milliseconds, 3), "times_lmh": round(ratio, 2)}
    _report(name_of(spec), findings, {"step": timing}, as_json=as_json)


def check_network(component: Component, as_json: Json = False) -> None:
    """Check what every network must hold: shapes, padding, evaluation pair by pair, gradients, learning by heart.

    Exit code 1 if something does not hold, 2 if there is no such network.
    """
    from vsetune.quality.network_checks import NETWORK_CHECKS  # brings torch, which other commands do without
    from vsetune.quality.network_learning import NetworkSubject

    load_installed()
    spec = network_at(component)
    _report(name_of(spec), _run(NETWORK_CHECKS, NetworkSubject(spec)), {}, as_json=as_json)


def _run(checks: Sequence[Check[Any]], subject: Any) -> list[Finding]:
    return [check.finding(subject) for check in checks]


def _report(name: str, findings: Sequence[Finding], facts: dict[str, Any], *, as_json: bool) -> None:
    """Print the findings; exit with code 1 if any check fails."""
    failed = [each for each in findings if each.result is Result.FAILS]
    if as_json:
        print_json({"name": name, "holds": not failed, "checks": [asdict(each) for each in findings], **facts})
    else:
        results.print(_table(findings))
        _say_step(facts.get("step", {}))
        say(f"{name}: {len(findings) - len(failed)} of {len(findings)} checks hold or do not apply")
    if failed:
        raise typer.Exit(1)


def _table(findings: Sequence[Finding]) -> Table:
    fixed = (Column(name, no_wrap=True) for name in ("check", "result"))
    table = Table(*fixed, Column("what it means", overflow="fold"))
    for each in findings:
        meaning = Text(each.meaning)
        if each.note:
            meaning.append(f"\n{each.note}", style="bold red" if each.result is Result.FAILS else "dim")
        table.add_row(Text(each.check), Text(str(each.result), style=_COLOURS[each.result]), meaning)
    return table


def _say_step(timing: dict[str, float]) -> None:
    if timing:
        say(f"a step of 128 pairs takes {timing['milliseconds']:.2f} ms, {timing['times_lmh']:.2f} x LMH in this run")


NEW_LOSS_EXAMPLE = "Example: vsetune losses new my_loss"
NEW_NETWORK_EXAMPLE = "Example: vsetune networks new my_network"

NewName = Annotated[str, typer.Argument(help="what study files will call it, e.g. my_own", show_default=False)]
Parent = Annotated[Path, place_to_write("--folder", metavar="DIR", help="where the folder NAME is made")]


def new_loss(name: NewName, folder: Parent = Path()) -> None:
    """Write a commented loss of your own that works, with its test: a folder to change."""
    _write("loss", name, folder)


def new_network(name: NewName, folder: Parent = Path()) -> None:
    """Write a commented network of your own that works, with its test: a folder to change."""
    _write("network", name, folder)


def _write(kind: Literal["loss", "network"], name: str, parent: Path) -> None:
    written = write_draft(kind, name, parent)
    for file in written:
        results.out(str(file), highlight=False)
    folder, noun = written[0].parent, {"loss": "losses", "network": "networks"}[kind]
    say(f"next: change {folder}/{kind}.py, then vsetune {noun} check {folder}")
    say(f"in a study file: plugins: [{folder.name}], and {noun}: [{{name: {name}}}]; the path starts at that file")
