"""`vsetune losses` and `vsetune networks`: what can be compared, and every hyperparameter of it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Annotated, Any, get_args

import typer
from pydantic.fields import FieldInfo
from rich.table import Column, Table
from rich.text import Text

from vsetune.cli.output import print_json, results, say
from vsetune.config.base import Choices, Domain, Spec, known_name, tunables
from vsetune.config.losses import HANDLES_SEVERAL_POSITIVES, LOSSES, NEEDS_SEMANTICS
from vsetune.config.networks import NETWORKS
from vsetune.errors import UsageError

losses = typer.Typer(
    no_args_is_help=True, help="What losses there are, and their hyperparameters.",
    epilog="Example: vsetune losses show lseh",
)
networks = typer.Typer(
    no_args_is_help=True, help="What networks there are, and their hyperparameters.",
    epilog="Example: vsetune networks show vse_infinity",
)

Name = Annotated[str, typer.Argument(help="name as in a study file", show_default=False)]
Json = Annotated[bool, typer.Option("--json", metavar="", help="the same as JSON")]
_LIMITS = (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"), ("multiple_of", "multiple of"))


@losses.command("list", epilog="Example: vsetune losses list")
def list_losses(as_json: Json = False) -> None:
    """List the losses, with what a study searches unless told otherwise."""
    _list(LOSSES, as_json=as_json)


@losses.command("show", epilog="Example: vsetune losses show lseh")
def show_loss(name: Name, as_json: Json = False) -> None:
    """Show a loss: where it comes from, and every hyperparameter."""
    _show(name, LOSSES, "loss", as_json=as_json)


@networks.command("list", epilog="Example: vsetune networks list")
def list_networks(as_json: Json = False) -> None:
    """List the networks, with what `search: default` varies."""
    _list(NETWORKS, as_json=as_json)


@networks.command("show", epilog="Example: vsetune networks show vse_infinity")
def show_network(name: Name, as_json: Json = False) -> None:
    """Show a network: where it comes from, and every hyperparameter."""
    _show(name, NETWORKS, "network", as_json=as_json)


def describe(name: str, spec: type[Spec]) -> dict[str, Any]:
    """A component as plain data: name, meaning, notes, and its hyperparameters in order of declaration."""
    domains = dict(tunables(spec))
    hyperparameters = [
        {
            "name": key, "default": field.get_default(), "allowed": _allowed(field),
            "search": domains[key].to_plain() if key in domains else None,
            "description": field.description or "", "source": _paper(field),
        }
        for key, field in spec.model_fields.items() if key != "name"
    ]
    return {
        "name": name, "meaning": inspect.getdoc(spec) or "", "notes": _notes(name), "hyperparameters": hyperparameters,
    }


def _list(specs: Mapping[str, type[Spec]], *, as_json: bool) -> None:
    if as_json:
        print_json([describe(name, spec) for name, spec in specs.items()])
        return
    table = Table(Column("name", no_wrap=True), "what it is", "searched by default")
    for name, spec in specs.items():
        meaning = " ".join((inspect.getdoc(spec) or "").split("\n\n")[0].split())
        table.add_row(*map(Text, (name, meaning, ", ".join(key for key, _ in tunables(spec)))))
    results.print(table)


def _show(name: str, specs: Mapping[str, type[Spec]], kind: str, *, as_json: bool) -> None:
    try:
        spec = specs[known_name(name, specs, kind)]
    except ValueError as error:
        raise UsageError(str(error)) from error
    described = describe(name, spec)
    if as_json:
        print_json(described)
        return
    table = Table(Column("hyperparameter", no_wrap=True), "default", "allowed", "meaning", show_lines=True)
    domains = dict(tunables(spec))
    for each in described["hyperparameters"]:
        allowed, meaning = each["allowed"], each["description"]
        if each["name"] in domains:
            allowed += f"\nsearched {domain_text(domains[each['name']])}"
        if each["source"]:
            meaning += f" ({each['source']})"
        table.add_row(*map(Text, (each["name"], value_text(each["default"]), allowed, meaning)))
    for line in (f"{name}: {described['meaning']}", *described["notes"]):
        results.print(line, markup=False, highlight=False, soft_wrap=True)
    results.print(table)
    say(f"in a study file: {{name: {name}, fixed: {{...}}, search: default}}")


def domain_text(domain: Domain) -> str:
    """`[0.05, 0.4]`, `[200, 20000] log`, `{a, b}`."""
    if isinstance(domain, Choices):
        return "{" + ", ".join(value_text(choice) for choice in domain.choices) + "}"
    return f"[{domain.low:g}, {domain.high:g}]" + (" log" if domain.log else "")


def value_text(value: Any) -> str:
    """A value as a study file writes it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _allowed(field: FieldInfo) -> str:
    """What values a field takes: its choices, or its type with the limits of its number."""
    if field.annotation is bool:
        return "true, false"
    choices = get_args(field.annotation)
    if choices and all(isinstance(choice, str) for choice in choices):
        return ", ".join(choices)
    limits = [
        f"{sign} {getattr(mark, name):g}"
        for mark in field.metadata for name, sign in _LIMITS
        if getattr(mark, name, None) is not None and math.isfinite(getattr(mark, name))
    ]
    kind = "integer" if field.annotation is int else "number" if field.annotation is float else ""
    return " ".join(part for part in (kind, ", ".join(limits)) if part)


def _paper(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    return str(extra.get("paper", "")) if isinstance(extra, dict) else ""


def _notes(name: str) -> list[str]:
    notes = []
    if name in NEEDS_SEMANTICS:
        notes.append("Needs semantic vectors of the captions; they are computed once from the train split.")
    if name in HANDLES_SEVERAL_POSITIVES:
        notes.append("Also takes batch_unit images: every image with all its captions.")
    return notes
